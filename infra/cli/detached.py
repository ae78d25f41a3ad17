"""How far the start or the stop of a supervisor is, shown while it lasts."""

from collections.abc import Callable, Mapping

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from infra.base.errors import NotReady
from infra.base.journal import StackJournal, StackState
from infra.base.settings import StackSettings
from infra.cli.output import fail, notes
from infra.stack.embedded import detached


def waiting_bar() -> Progress:
    """How far a start is, on standard error."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=notes,
    )


def start(
    settings: StackSettings,
    journal: StackJournal,
    module: str,
    names: list[str],
    progress: Progress,
    task: TaskID,
    more: Mapping[str, str] | None = None,
) -> None:
    """Run the supervisor `module` detached, with `more` in its environment; return when all is ready, else
    fail with the reason."""
    try:
        detached.start(settings, journal, module, names, more or {}, _shown(progress, task))
    except NotReady as reason:
        progress.stop()
        fail(str(reason))


def stop(journal: StackJournal, doing: str) -> bool:
    """Stop a living supervisor and wait for its end; False when there is none."""
    try:
        with notes.status(doing):
            return detached.stop(journal)
    except NotReady as reason:
        fail(str(reason))


def _shown(progress: Progress, task: TaskID) -> Callable[[StackState], None]:
    def show(state: StackState) -> None:
        waiting = [member.name for member in state.members if not (member.ready or member.held)]
        progress.update(
            task,
            completed=len(state.members) - len(waiting),
            description=f"waiting for {', '.join(waiting)}" if waiting else "ready",
        )

    return show
