"""`daybook failover report` and `reconcile`: what a failover lost, and what became of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.prompt import Prompt

from analytics.terminal import Table
from infra.base.errors import NotDone
from infra.cli.acts import FAILURES, GIVEN_UP, ReasonOption, only_command, operator_id, recorded
from infra.cli.lifecycle import client_settings
from infra.cli.output import fail, notes, print_json, results
from infra.dr.export import MONEY, csv_lines, money, totals
from infra.dr.losses import Report
from infra.dr.reconcile import ReconStanding, chosen, reissue, save, standings, write_off
from infra.dr.report import kept_report, make_report, note_decisions

app = typer.Typer()

SHOWN_TORN = NAMED = 10


@app.command("report")
def show_report(
    as_json: Annotated[bool, typer.Option("--json", help="For other tools, with the totals.")] = False,
    as_csv: Annotated[
        bool,
        typer.Option("--csv", help="For customer care: commands whose outcome a client may have received."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it to this file, as JSON.")
    ] = None,
) -> None:
    """List what the old site acknowledged and the new one does not have. Of the old site its disk is enough."""
    settings = client_settings()
    try:
        with only_command(settings, "failover report"), notes.status("Checking both sites") as status:
            report = make_report(settings, status.update, notes.print)
            entries = note_decisions(settings, report)
            if out is not None:
                save(report, out)
    except (*FAILURES, OSError) as reason:
        fail(str(reason))
    if as_json:
        print_json({**msgspec.to_builtins(report), "totals": totals(report)})
    elif as_csv:
        for line in csv_lines(entry for entry in entries if entry.loss.acknowledged):
            results.print(line)
    else:
        _show(report, entries)
    if any(entry.state == "open" for entry in entries):
        notes.print("Decide with `./daybook failover reconcile`.")


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
    reason: ReasonOption = GIVEN_UP,
) -> None:
    """Send lost commands again under their old ids, or write them off; without options: show where each is.

    Ids can be abbreviated, and options repeated.
    """
    settings = client_settings()
    try:
        with only_command(settings, "failover reconcile"):
            active, report = kept_report(settings)
            bootstrap = active.bootstrap
            entries = standings(bootstrap, report)
            again = chosen(entries, reissue_ids or [])
            given_up = chosen(entries, write_off_ids or [])
            waiting = [entry for entry in entries if entry.state == "open"]
            if reissue_all:
                again += [entry for entry in waiting if entry not in given_up and entry not in again]
            elif interactive:
                _choose(waiting, again, given_up)
            if both := [entry for entry in given_up if entry in again]:
                raise NotDone(f"{_ids(both)}: either send it again or write it off")
            if given_up:
                with recorded("failover reconcile --write-off", _ids(given_up), reason, bootstrap):
                    for done in write_off(bootstrap, report, given_up, reason):
                        _print_decision(done)
            if again:
                with recorded("failover reconcile --reissue", _ids(again), reason, bootstrap):
                    reissue(bootstrap, report, again, operator_id(), _print_decision)
            _show(report, note_decisions(settings, report))
    except FAILURES as problem:
        fail(str(problem))


def _ids(entries: Sequence[ReconStanding]) -> str:
    """Up to NAMED command ids; the decision on each is in `site.reconciliation`."""
    ids = [entry.loss.command_id for entry in entries]
    return " ".join(ids[:NAMED]) + (f" and {len(ids) - NAMED} more" if len(ids) > NAMED else "")


def _show(report: Report, entries: Sequence[ReconStanding]) -> None:
    acknowledged = [entry for entry in entries if entry.loss.acknowledged]
    if acknowledged:
        results.print(_table(acknowledged))
    results.print(
        f"{report.kind} switch from {report.old_site} to {report.new_site}, epoch {report.epoch}: {report.verdict}"
    )
    for part in report.unproven:
        at = (
            f"from offset {part.first} on"
            if part.first == part.end
            else f"from offset {part.first} to {part.end - 1}"
        )
        results.print(f"unknown: {part.topic}/{part.partition} {at}: {part.reason}")
    for partition in report.searched:
        results.print(
            f"{partition} has no position of the mirror: its last mirrored record was searched by its time"
        )
    if entries:
        _show_totals(report, len(entries) - len(acknowledged))
    for torn in report.torn_transactions[:SHOWN_TORN]:
        results.print(
            f"partially mirrored: {torn.crossed} of {torn.count} events of {torn.topic} transaction {torn.id}"
        )
    if len(report.torn_transactions) > SHOWN_TORN:
        results.print(
            f"… and {len(report.torn_transactions) - SHOWN_TORN} more partially mirrored transactions: see --json"
        )
    for cut in report.conversations[:SHOWN_TORN]:
        results.print(f"cut: order {cut.order_id}, {cut.how}")
    if len(report.conversations) > SHOWN_TORN:
        results.print(f"… and {len(report.conversations) - SHOWN_TORN} more cut conversations: see --json")
    if report.parted:
        results.print(f"{len(report.parted)} versions have another event at the new site: see --json")


def _show_totals(report: Report, inside: int) -> None:
    sums = totals(report)
    sums_of_money = ", ".join(f"{amount} of {kind}" for kind, amount in sums.money.items()) or "no money"
    results.print(
        f"{sums.commands} accepted commands of {sums.customers} customers and {sums.orders_of_guests} orders without a "
        f"known customer were not copied; {sums.orders} orders; {sums_of_money}"
    )
    results.print(f"{inside} more commands belong to conversations, which continue by themselves.")


def _table(entries: Sequence[ReconStanding]) -> Table:
    headers = ("command", "entity", "at", "what", "gross", "refund", "units", "outcome", "now", "a repeat")
    table = Table(*headers, whole=3)
    for entry in entries:
        loss, figures = entry.loss, entry.loss.amounts
        kind = loss.command_type.rpartition(".")[2] or "gone by retention"
        outcome = loss.outcome if not loss.code else f"{loss.outcome}: {loss.code}"
        units = str(figures.get("units", figures.get("quantity", "")))
        cells = (kind, *(money(loss, name) for name in MONEY), units, outcome, _now(entry), loss.repeat)
        table.add_row(loss.command_id, loss.subject, loss.at, *cells)
    return table


def _now(entry: ReconStanding) -> str:
    outcome = getattr(entry.decision, "outcome", "")
    return f"{entry.state}: {outcome}" if outcome else entry.state


def _choose(
    waiting: Sequence[ReconStanding], again: list[ReconStanding], given_up: list[ReconStanding]
) -> None:
    for entry in waiting:
        loss = entry.loss
        amounts = " ".join(filter(None, (money(loss, name) for name in MONEY)))
        results.print(f"{loss.command_id} {loss.at} {loss.command_type} of {loss.subject} {amounts}")
        match Prompt.ask("again, off or later", choices=["again", "off", "later"], default="later"):
            case "again":
                again.append(entry)
            case "off":
                given_up.append(entry)


def _print_decision(entry: ReconStanding) -> None:
    notes.print(f"{entry.loss.command_id} of {entry.loss.subject}: {_now(entry)}")
