"""`daybook status`, `env`, `logs`: the processes, their addresses and their output."""

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

from analytics.offsets import responds
from analytics.terminal import Table, lines
from contracts.kafka_address import bootstrap_of
from infra.base.http import local_http
from infra.base.journal import MemberState
from infra.base.ports import HOST
from infra.base.settings import MOST, StackSettings
from infra.cli import in_containers
from infra.cli.lifecycle import client_settings, here, shop_entrance
from infra.cli.output import fail, notes, results
from infra.log.streams import stream_lines
from infra.stack.embedded.kafka import members_seen
from infra.stack.embedded.router import router_journal
from infra.stack.embedded.stack import log_file, store_probes
from infra.stack.embedded.supervisor import site_storage
from infra.stack.shop import (
    MIRROR,
    NAMES,
    ROUTER,
    SILENT,
    SITE_NAMES,
    WORKERS,
    further_addresses,
    instances,
    kind_of,
)
from infra.stack.site import Site, as_started, peer
from infra.stack.tokens import demo_header

app = typer.Typer()
NOT_UP = "the stack is not running: `./daybook up` starts it"
COLUMNS = ("process", "pid", "memory", "ready", "restarts", "lag", "address")
LAGS = ("daybook_lag_events", "daybook_standby_lag_events")
KNOWN, UNKNOWN = "daybook_lag_known", "unknown"
ANSWER_SECONDS = 2.0
SHOWN_EVENTS = 5
FOLLOW_SECONDS = 0.3
BROKER = "host:port, or sasl_ssl://host:port?identity=FILE of a secured one; default: the running stack's."
Kafka = Annotated[str, typer.Option(envvar="DAYBOOK_KAFKA", help=BROKER)]


@app.command()
def status() -> None:
    """Show every process: pid, memory, ready, restarts, lag, address, and what happened last.

    Exit code 1 unless the stack is up, every process is ready, and the disk has room.
    """
    settings = StackSettings()
    if settings.stack == "compose":
        in_containers.status(settings)
        return
    shown = list(reversed(here(settings)))
    ready = [_show(site, site.name if len(shown) > 1 else "") for site in shown]
    if len(shown) > 1:
        ready.append(_show_router(settings))
    if not all(ready):
        raise typer.Exit(1)


def _show(site: Site, title: str) -> bool:
    """Print one site's table and last events. Returns whether every process that should run is ready."""
    journal = site.journal
    state = journal.read()
    if state is None or not journal.supervised():
        if title:
            results.print(f"{title} is not running: `./daybook --site {title} up` starts it")
            return False
        if state and state.failure:
            notes.print(lines(f"The last start failed: {state.failure}"))
        fail(NOT_UP)
    settings = site.settings.model_copy(update={"port_base": state.port_base})
    stores = store_probes(settings)
    with ThreadPoolExecutor(len(NAMES)) as pool:
        rows = list(pool.map(lambda member: _row(settings, member, stores.get(member.name)), state.members))
    results.print(Table(*COLUMNS, rows=(row.cells for row in rows), title=title or None, whole=True))
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


def _show_router(settings: StackSettings) -> bool:
    """Print what is wrong with the router. Returns whether it is ready, or was never started."""
    journal = router_journal(settings)
    state = journal.read()
    if state is None:
        return True
    url = StackSettings(home=settings.home, port_base=state.port_base).health_url(ROUTER)
    member = state.members[0] if journal.supervised() else MemberState(ROUTER)
    why = _why_not_ready(url, member, None)
    results.print(f"router: {f'not ready, {why}' if why else 'ready'}, at {url}")
    return not why


@app.command()
def env() -> None:
    """Print KEY=value lines with the addresses of the stack: `eval "$(./daybook env)"`.

    DAYBOOK_AUTH is the header of a token with every scope: curl -H "$DAYBOOK_AUTH" (docs/reference/tokens.md).
    Of two sites these are the addresses that follow the active site; with --site those of one of them.
    """
    settings = client_settings()
    reach = shop_entrance(settings)
    counts = {} if reach.about else Site(settings).journal.counts()
    for name, value in {**reach.addresses, **further_addresses(settings, counts)}.items():
        # to a shell, `&` is the end of a command
        results.print(f"{name}='{value}'" if "&" in value else f"{name}={value}")
    # Set in any case: the commands of the README send it. curl leaves out an empty header.
    results.print(f"DAYBOOK_AUTH='{demo_header(settings)}'")
    if reach.about:
        notes.print(reach.about)


@app.command()
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
    names = (*NAMES, *((*SITE_NAMES, ROUTER) if peer(settings) else ()))
    if name and kind_of(name) not in (*names, "supervisor"):
        raise typer.BadParameter(f"{name}: not one of {', '.join(names)}, supervisor", param_hint="NAME")
    every = [process for kind in (*names, "supervisor") for process in instances(kind, MOST)]
    files = [log_file(settings, process) for process in ([name] if name else every)]
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

    Ends with `exit_code` where it is not running: another checkout's stack may use the caller's ports.
    """
    if (started := as_started(StackSettings())) is None:
        fail(NOT_UP, exit_code)
    return started


def broker_at(kafka: str) -> str:
    """The broker that a command names, or that of the running stack. Ends the command where nothing listens there, or
    where the stack's own is no member yet."""
    address = kafka or running_settings().kafka
    if not (responds(bootstrap_of(kafka)) if kafka else members_seen(address)):
        fail(f"no broker responds at {bootstrap_of(address)}: `./daybook up` starts the stack")
    return address


def own_settings() -> StackSettings:
    """The settings for commands that need no running stack; with its ports if it runs."""
    settings = StackSettings()
    return as_started(settings) or settings


class Row(NamedTuple):
    """A process in the table; `why_not_ready` is empty where it is ready, or is the mirror, and held."""

    cells: list[str]
    why_not_ready: str


def _row(settings: StackSettings, member: MemberState, responds: Callable[[], bool] | None) -> Row:
    """`responds` probes a store."""
    why = _why_not_ready(settings.health_url(member.name), member, responds)
    ready = "held" if member.held else "no" if why else "yes"
    cells = [member.name, str(member.pid or "-"), memory(member.pid), ready, str(member.restarts)]
    return Row([*cells, _lag(settings, member.name), f"{HOST}:{settings.port(member.name)}"], why)


def _why_not_ready(url: str, member: MemberState, responds: Callable[[], bool] | None) -> str:
    """Checked now: a process that was ready may hang."""
    if member.held:
        # The mirror is held at the active site; what else is held, a command has not released yet.
        return "" if member.name == MIRROR else "a command keeps it down, or was interrupted: run it again"
    if member.pid is None:
        return "it is not running"
    if responds is not None and not responds():
        return "it does not respond"
    if kind_of(member.name) in SILENT:
        return "" if member.ready else "not yet"
    try:
        response = local_http().get(f"{url}/health/ready", timeout=ANSWER_SECONDS)
        return "" if response.status_code == 200 else str(response.json().get("reason", response.status_code))
    except (httpx.HTTPError, ValueError):
        return "it does not respond"


def memory(pid: int | None) -> str:
    """Resident megabytes of a process and its children (PostgreSQL's backends share much: an upper bound)."""
    try:
        process = psutil.Process(pid) if pid else None
        family = [process, *process.children(recursive=True)] if process else []
        return f"{sum(member.memory_info().rss for member in family) / 1e6:.0f} MB" if family else "-"
    except psutil.NoSuchProcess:
        return "-"


def _lag(settings: StackSettings, name: str) -> str:
    """The waiting commands of a worker, or the events of the read model that is furthest behind."""
    if kind_of(name) not in WORKERS.values() and name != "projection":
        return ""
    # the query API measures the lag of the projection, which may be dead
    url = settings.health_url("query-api" if name == "projection" else name)
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
    """New lines of these files, for ever."""
    offsets = {file: file.stat().st_size for file in files}
    while True:
        for file, offset in offsets.items():
            if file.stat().st_size < offset:  # rotated
                offset = 0
            with file.open("rb") as opened:
                opened.seek(offset)
                fresh = opened.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            offsets[file] = offset + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield file, line
        time.sleep(FOLLOW_SECONDS)
