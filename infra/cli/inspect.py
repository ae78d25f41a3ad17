"""`daybook status`, `env`, `logs`: what runs, where it listens, what it said."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, NamedTuple

import httpx
import psutil
import typer
from prometheus_client.parser import text_string_to_metric_families

from analytics.terminal import Table, lines
from infra.base.http import local_http
from infra.base.journal import MemberState, StackJournal, StackState
from infra.base.settings import StackSettings
from infra.cli import in_containers, two_sites
from infra.cli.output import fail, notes, results
from infra.log.stream_counts import stream_lines
from infra.stack.embedded.housekeeping import site_storage
from infra.stack.embedded.stack import log_file, members
from infra.stack.shop import NAMES, SILENT, SITE_NAMES, STORES, addresses
from infra.stack.site import Site, peer

app = typer.Typer()
NOT_UP = "the stack is not running: `./daybook up` starts it"
LAGS = ("daybook_lag_events", "daybook_standby_lag_events")
KNOWN, UNKNOWN = "daybook_lag_known", "unknown"
# A projection that is dead cannot say how far it is behind: the query API measures it.
LAG_OF = {"order-worker": "order-worker", "inventory-worker": "inventory-worker", "projection": "query-api"}
ANSWER_SECONDS = 2.0
SHOWN_EVENTS = 5
FOLLOW_SECONDS = 0.3


@app.command(rich_help_panel="The stack")
def status() -> None:
    """Show every process: pid, memory, ready, restarts, lag, address, and what happened last.

    Exit code 1 unless the stack is up, every process is ready, and the disk has room.
    """
    settings = StackSettings()
    if settings.stack == "compose":
        in_containers.status(settings)
        return
    shown = list(reversed(two_sites.here(settings)))
    ready = [_show(site, site.name if len(shown) > 1 else "") for site in shown]
    if not all(ready):
        raise typer.Exit(1)


def _show(site: Site, title: str) -> bool:
    """Print one site's table and last events; False unless every process that should be up is ready."""
    journal = site.journal
    state = journal.read()
    if state is None or not journal.supervised():
        if title:
            results.print(f"{title} is not running")
            return False
        if state and state.failure:
            notes.print(lines(f"The last start failed: {state.failure}"))
        fail(NOT_UP)
    settings = site.settings.model_copy(update={"port_base": state.port_base})
    stores = {member.name: member.ready for row in members(settings, STORES) for member in row}
    table = Table(
        "process", "pid", "memory", "ready", "restarts", "lag", "address", title=title or None, whole=True
    )
    with ThreadPoolExecutor(len(NAMES)) as pool:
        rows = list(pool.map(lambda member: _row(settings, member, stores.get(member.name)), state.members))
    for row in rows:
        table.add_row(*row.cells)
    results.print(table)
    for row in rows:
        if row.why_not_ready:
            results.print(f"{row.cells[0]} is not ready: {row.why_not_ready}")
    storage = site_storage(settings, was_short=state.short)
    if storage.short:
        results.print(f"storage: {storage}")
    for line in stream_lines(site.database_url, settings.typed):
        results.print(line)
    notable = [event for event in journal.events() if event["event"] not in ("started", "topics")]
    for event in notable[-SHOWN_EVENTS:]:
        first_line = event["detail"].partition("\n")[0]
        results.print(f"{event['at']} {event['process']} {event['event']} {first_line}")
    return not any(row.why_not_ready for row in rows) and not storage.short


@app.command(rich_help_panel="For other tools")
def env() -> None:
    """Print KEY=value lines with the addresses of the stack: `eval "$(./daybook env)"`."""
    for name, value in addresses(running_settings()).items():
        results.print(f"{name}={value}")


@app.command(rich_help_panel="The stack")
def logs(
    name: Annotated[
        str, typer.Argument(help="A process, as `./daybook status` names it; default: all.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue to print until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Number of lines.")] = 20,
) -> None:
    """Print the end of one process's log, or of all logs."""
    settings = StackSettings()
    if settings.stack == "compose":
        in_containers.logs(settings, name, follow=follow, lines=lines)
        return
    names = (*NAMES, *(SITE_NAMES if peer(settings) else ()))
    if name and name not in (*names, "supervisor"):
        raise typer.BadParameter(f"{name}: not one of {', '.join(names)}, supervisor", param_hint="NAME")
    files = [log_file(settings, each) for each in ([name] if name else [*names, "supervisor"])]
    present = [file for file in files if file.exists()]
    if not present:
        fail("no log yet: `./daybook up` starts the stack")
    for file in present:
        for line in file.read_text(errors="replace").splitlines()[-lines:] if lines > 0 else []:
            results.print(_labelled(file, line, bool(name)))
    if follow:
        for file, line in _appended(present):
            results.print(_labelled(file, line, bool(name)))


def running_settings(exit_code: int = 1) -> StackSettings:
    """The settings of the running stack, whose ports were chosen when it started.

    Leaves with `exit_code` where it is not up: at the caller's ports another checkout's stack may listen.
    """
    settings = StackSettings()
    if settings.stack == "compose":
        return settings
    journal = StackJournal(settings.home)
    state: StackState | None = journal.read()
    if state is None or not journal.supervised():
        fail(NOT_UP, exit_code)
    return StackSettings(port_base=state.port_base)


def own_settings() -> StackSettings:
    """Where the stack's files are, for what needs no running stack; its ports if it is up."""
    settings = StackSettings()
    return running_settings() if StackJournal(settings.home).supervised() else settings


class Row(NamedTuple):
    """A process in the table; `why_not_ready` is empty where it is ready, or held."""

    cells: list[str]
    why_not_ready: str


def _row(settings: StackSettings, member: MemberState, answers: Callable[[], bool] | None) -> Row:
    """`answers` asks a store."""
    url = settings.url(member.name)
    why = "" if member.held else _why_not_ready(url, member, answers)
    return Row(
        [
            member.name,
            str(member.pid or "-"),
            memory(member.pid),
            "held" if member.held else "no" if why else "yes",
            str(member.restarts),
            _lag(settings.url(LAG_OF[member.name])) if member.name in LAG_OF else "",
            url.removeprefix("http://"),
        ],
        why,
    )


def _why_not_ready(url: str, member: MemberState, answers: Callable[[], bool] | None) -> str:
    """Asked now: what was ready once may hang."""
    if member.pid is None:
        return "it is not running"
    if answers is not None:
        return "" if answers() else "it does not respond"
    if member.name in SILENT:
        return "" if member.ready else "not yet"
    try:
        answer = local_http().get(f"{url}/health/ready", timeout=ANSWER_SECONDS)
        return "" if answer.status_code == 200 else str(answer.json().get("reason", answer.status_code))
    except (httpx.HTTPError, ValueError):
        return "it does not respond"


def memory(pid: int | None) -> str:
    """Resident megabytes of a process and its children (PostgreSQL's backends share much: an upper bound)."""
    try:
        process = psutil.Process(pid) if pid else None
        family = [process, *process.children(recursive=True)] if process else []
        return f"{sum(each.memory_info().rss for each in family) / 1e6:.0f} MB" if family else "-"
    except psutil.NoSuchProcess:
        return "-"


def _lag(url: str) -> str:
    """Commands that wait for a worker, events for the read model that is furthest behind."""
    try:
        text = local_http().get(f"{url}/metrics", timeout=2 * ANSWER_SECONDS).text
    except httpx.HTTPError:
        return UNKNOWN
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    if not any(sample.name == KNOWN and sample.value for sample in samples):
        return UNKNOWN
    behind: Counter[str] = Counter()
    for sample in samples:
        if sample.name in LAGS:
            behind[sample.labels.get("read_model", "")] += int(sample.value)
    return str(max(behind.values(), default=0))


def _labelled(file: Path, line: str, alone: bool) -> str:
    shown = line.expandtabs()
    return shown if alone else f"{file.stem:>16} | {shown}"


def _appended(files: list[Path]) -> Iterator[tuple[Path, str]]:
    """Lines written from now on, for ever."""
    places = {file: file.stat().st_size for file in files}
    while True:
        for file, place in places.items():
            if file.stat().st_size < place:  # rotated
                place = 0
            with file.open("rb") as opened:
                opened.seek(place)
                fresh = opened.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            places[file] = place + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield file, line
        time.sleep(FOLLOW_SECONDS)
