"""`daybook contracts`: check that the contracts hold together; lock new versions."""

import typer
from rich.text import Text

from contracts.lock import load_lock
from infra.cli.output import results
from infra.k8s import strimzi
from infra.log.contracts import generator
from infra.log.contracts import lock as schema_lock
from infra.log.contracts.lock import problems
from infra.log.contracts.schemas import ContractError

app = typer.Typer(help="Check and lock the schemas in contracts/.", no_args_is_help=True)
DONE, NEW, WRONG = Text("✓", "green"), Text("+", "green"), Text("✗", "red")


@app.command()
def check() -> None:
    """Check schemas, catalogue, lock, generated classes, Kubernetes topics and compatibility (FULL_TRANSITIVE).

    Changes nothing. Exit code 1 if something is wrong.
    """
    try:
        reasons = [*problems(), *strimzi.drift()]
    except ContractError as error:
        reasons = str(error).splitlines()
    if reasons:
        _refuse(reasons)
    lock = load_lock()
    ids = {entry.id for entry in lock.entries}
    results.print(
        DONE,
        f"{len(ids)} schemas under {len(lock.subjects())} subjects: "
        "locked, generated, compatible in every direction",
    )


@app.command()
def lock() -> None:
    """Give ids to new schema versions; generate classes, and topics for Kubernetes. A locked schema is never changed.

    Exit code 1, and nothing written, if a change is incompatible or a locked schema was changed.
    """
    try:
        new = schema_lock.lock()
        changed = [f"contracts/{path}" for path in generator.write()]
        changed += [f"infra/k8s/{path}" for path in strimzi.write()]
    except ContractError as error:
        _refuse(str(error).splitlines())
    for entry in new:
        results.print(NEW, f"id {entry.id}: {entry.subject} version {entry.version}")
    for path in changed:
        results.print(NEW, path)
    if not new and not changed:
        results.print(DONE, "nothing to do: everything is locked and generated")


def _refuse(reasons: list[str]) -> None:
    for reason in reasons:
        results.print(WRONG, reason)
    raise typer.Exit(1)
