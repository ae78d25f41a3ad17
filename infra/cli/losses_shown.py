"""`daybook failover report` and `reconcile`: what did not cross, and what becomes of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from confluent_kafka import KafkaException
from rich.prompt import Prompt

from analytics.terminal import Table
from infra.base.errors import DaybookError
from infra.base.settings import StackSettings
from infra.cli.output import fail, notes, results
from infra.dr.deciding import NoOutcome
from infra.dr.losses import Loss, Report, report
from infra.dr.old_log import readable
from infra.dr.plan import both_sites, controls
from infra.dr.reconcile import (
    ReconStanding,
    Undecidable,
    chosen,
    load,
    reissue,
    save,
    standings,
    write_off,
)
from infra.dr.steps import NotDone, Show
from infra.stack.site import Site, home_settings
from services.kernel.log.reader import NotCaughtUp
from services.kernel.log.transactions import OwnershipLost

app = typer.Typer()
MICROS = 1_000_000
SHOWN_TORN = 10
SHOWN_ID = 13  # characters: enough for --reissue and --write-off
SHOWN_TIME = 19  # to the second

ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="A stored report; default: the newest.")
]


@app.command("report")
def show_report(
    as_json: Annotated[bool, typer.Option("--json", help="For other tools.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it to this file, as JSON.")
    ] = None,
) -> None:
    """List what the old site acknowledged and the new one does not have. Needs only the old site's disk."""
    settings = StackSettings()
    try:
        with notes.status("Checking both sites") as status:
            found, file = make_report(settings, status.update)
            entries = standings(_active(settings).bootstrap, found)
    except (NotDone, DaybookError, NotCaughtUp, TimeoutError, KafkaException, OwnershipLost) as reason:
        fail(str(reason))
    if out is not None:
        save(found, out)
    if as_json:
        results.print(msgspec.json.encode(found).decode())
        return
    _show(found, entries)
    notes.print(f"Stored in {file}. Decide with `./daybook failover reconcile`.")


@app.command()
def reconcile(
    reissue_ids: Annotated[
        list[str] | None, typer.Option("--reissue", metavar="ID", help="Send this command again.")
    ] = None,
    write_off_ids: Annotated[
        list[str] | None, typer.Option("--write-off", metavar="ID", help="Drop this command.")
    ] = None,
    reissue_all: Annotated[bool, typer.Option("--reissue-all", help="Send all open commands again.")] = False,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Ask for each.")] = False,
    reason: Annotated[
        str, typer.Option(help="Stored with the command that is written off.")
    ] = "given up by an operator",
    file: ReportFile = None,
) -> None:
    """Send lost commands again under their old ids, or write them off; without options: show where each is.

    Ids can be abbreviated, and options repeated.
    """
    settings = StackSettings()
    try:
        found, bootstrap = load(file or _newest(settings)), _active(settings).bootstrap
        entries = standings(bootstrap, found)
        again = chosen(entries, reissue_ids or [])
        given_up = chosen(entries, write_off_ids or [])
        waiting = [entry for entry in entries if entry.state == "open"]
        if reissue_all:
            again += [entry for entry in waiting if entry not in given_up and entry not in again]
        elif interactive:
            _ask(waiting, again, given_up)
        if given_up:
            for done in write_off(bootstrap, given_up, reason):
                _tell(done)
        if again:
            reissue(bootstrap, found, again, _tell)
        _show(found, standings(bootstrap, found))
    except (NotDone, Undecidable, NoOutcome, TimeoutError, KafkaException) as problem:
        fail(str(problem))
    except (OSError, msgspec.DecodeError) as problem:
        fail(f"the report cannot be read: {problem}")


def make_report(settings: StackSettings, show: Show) -> tuple[Report, Path]:
    """Compare both logs and keep what was found. Raises NotDone and what reading raises."""
    active = _active(settings)
    old = next(site for name, site in both_sites(settings).items() if name != active.name)
    with readable(old, show) as address:
        found = report(address, active.bootstrap, old.name, active.name, show)
    file = _folder(settings) / f"lost-before-epoch-{_epoch(active)}.json"
    save(found, file)
    return found, file


def keep_report(settings: StackSettings) -> None:
    """Make the report of this epoch unless there is one: soon the old log is an archive."""
    active = _active(settings)
    file = _folder(settings) / f"lost-before-epoch-{_epoch(active)}.json"
    if file.exists():
        return
    with notes.status("Comparing both logs") as status:
        found, file = make_report(settings, status.update)
    count = len(found.acknowledged)
    notes.print(f"{count} acknowledged commands were not copied; listed in {file}")


def _show(found: Report, entries: Sequence[ReconStanding]) -> None:
    acknowledged = [entry for entry in entries if entry.loss.acknowledged]
    if acknowledged:
        results.print(_table(acknowledged))
    inside = len(entries) - len(acknowledged)
    events = sum(len(loss.events) for loss in found.losses)
    results.print(
        f"{len(acknowledged)} acknowledged commands were not copied from {found.old_site} to {found.new_site}; "
        f"{inside} more belong to conversations, which continue by themselves; {events} events in all.",
    )
    for torn in found.torn_transactions[:SHOWN_TORN]:
        results.print(
            f"partially mirrored: {torn.crossed} of {torn.count} events of {torn.topic} transaction {torn.id}"
        )
    if len(found.torn_transactions) > SHOWN_TORN:
        results.print(
            f"… and {len(found.torn_transactions) - SHOWN_TORN} more partially mirrored transactions: see --json"
        )
    for cut in found.conversations[:SHOWN_TORN]:
        results.print(f"cut: order {cut.order_id}, {cut.how}")
    if len(found.conversations) > SHOWN_TORN:
        results.print(f"… and {len(found.conversations) - SHOWN_TORN} more cut conversations: see --json")
    if found.parted:
        results.print(f"{len(found.parted)} versions have another event at the new site: see --json")


def _table(entries: Sequence[ReconStanding]) -> Table:
    table = Table("command", "what", "entity", "amount", "answered", "at", "now", whole=True)
    for entry in entries:
        loss = entry.loss
        kind = loss.command_type.rpartition(".")[2] or "gone by retention"
        answered = loss.outcome if not loss.code else f"{loss.outcome}: {loss.code}"
        name, at = loss.command_id[:SHOWN_ID], loss.at[:SHOWN_TIME]
        table.add_row(name, kind, loss.subject, amount(loss), answered, at, _now(entry))
    return table


def amount(loss: Loss) -> str:
    """Money and units of a loss, as a person reads them."""
    figures = loss.amounts
    money = [
        f"{name} {int(figures[name]) / MICROS:.2f} {figures.get('currency', '')}"
        for name in ("gross", "refund")
        if name in figures
    ]
    units = [f"{figures[name]} units" for name in ("units", "quantity") if name in figures]
    return ", ".join([*money, *units])


def _now(entry: ReconStanding) -> str:
    outcome = getattr(entry.decision, "outcome", "")
    return f"{entry.state}: {outcome}" if outcome else entry.state


def _ask(
    waiting: Sequence[ReconStanding],
    again: list[ReconStanding],
    given_up: list[ReconStanding],
) -> None:
    for entry in waiting:
        loss = entry.loss
        results.print(f"{loss.at} {loss.command_type} of {loss.subject} {amount(loss)}")
        match Prompt.ask("again, off or later", choices=["again", "off", "later"], default="later"):
            case "again":
                again.append(entry)
            case "off":
                given_up.append(entry)


def _tell(entry: ReconStanding) -> None:
    text = f"{entry.loss.command_id} of {entry.loss.subject}: {_now(entry)}"
    notes.print(text)


def _active(settings: StackSettings) -> Site:
    """The site that is active in the newest epoch. Raises NotDone."""
    active = {
        name: control.role.epoch
        for name, control in controls(both_sites(settings)).items()
        if control is not None and control.role.role == "active"
    }
    if not active:
        raise NotDone("no active site responds: `./daybook sites`")
    return both_sites(settings)[max(active, key=lambda name: active[name])]


def _epoch(site: Site) -> int:
    control = controls({site.name: site})[site.name]
    if control is None:
        raise NotDone(f"{site.name} no longer responds")
    return control.role.epoch


def _folder(settings: StackSettings) -> Path:
    return home_settings(settings).home / "reports"


def _newest(settings: StackSettings) -> Path:
    files = sorted(_folder(settings).glob("lost-before-epoch-*.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise NotDone("there is no report yet: `./daybook failover report` writes it")
    return files[-1]
