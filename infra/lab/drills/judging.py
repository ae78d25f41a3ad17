"""The verdict after a failover: the raw log's invariants, and the lost list against the clients' own file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from infra.dr.losses import Loss, LostRecord, Report
from infra.lab.checker import Evidence, Violation, check, read_evidence, read_seen, read_sent
from infra.lab.drills.acknowledged import Acknowledgement
from infra.lab.drills.report import DrillReport
from infra.log.event_log import foreign_records

MICROS = 1_000_000
INVARIANTS = {
    "I1": "what was acknowledged is logged",
    "I2": "one command, one effect, one answer",
    "I3": "versions without gaps, ids once",
    "I5": "nothing of an aborted transaction is visible",
    "I6": "transactions whole",
    "I7": "stock adds up at every prefix",
    "I8": "money is conserved",
    "I9": "conversations end",
    "I10": "one writer, epochs only rise",
}


@dataclass(frozen=True)
class Missing:
    """Acknowledged commands of the old epoch whose event the new site's log does not have.

    `unlisted` are in the clients' file and not in the report; `unexplained` are in the report, and clients
    were told of no loss nor still waiting for an answer.
    """

    commands: tuple[Acknowledgement, ...]
    unlisted: tuple[str, ...]
    unexplained: tuple[str, ...]


def missing(
    bootstrap: str, told: Iterable[Acknowledgement], before_epoch: int, lost: Report, sent: Collection[str]
) -> Missing:
    """Recomputed from the log at `bootstrap` and the clients' answers alone, then laid beside `lost`."""
    present = {recorded.metadata.id for recorded in read_evidence(bootstrap)}
    old = [each for each in told if each.accepted and each.event_id and each.epoch < before_epoch]
    gone = [each for each in old if each.event_id not in present]
    listed = {record.event_id: loss for loss in lost.acknowledged for record in loss.events}
    unlisted = [each.command_id for each in gone if each.event_id not in listed]
    known = {each.command_id for each in gone}
    answered = {each.command_id for each in old} - known
    unexplained = [
        loss.command_id
        for loss in lost.acknowledged
        if loss.events and (loss.command_id in answered or loss.command_id not in known.union(sent))
    ]
    return Missing(tuple(gone), tuple(unlisted), tuple(unexplained))


def not_logged(bootstrap: str, told: Iterable[Acknowledgement]) -> list[str]:
    """Acknowledged commands whose event is not in the log."""
    present = {recorded.metadata.id for recorded in read_evidence(bootstrap)}
    return [each.command_id for each in told if each.event_id and each.event_id not in present]


def judge(
    report: DrillReport,
    bootstrap: str,
    told: Sequence[Acknowledgement],
    lost: Report | None = None,
    database_url: str | None = None,
) -> None:
    """The invariants over the log at rest, one row each; what `lost` lists is left out of I1, I2 and I6.

    Without the read models' `database_url` I5 is judged by what workers executed alone.
    """
    given_up = {loss.command_id for loss in lost.losses} if lost else set()
    torn = {each.id for each in lost.torn_transactions} if lost else set()
    kept = [each.for_checker() for each in told if each.command_id not in given_up]
    sent = read_sent(bootstrap)
    report.figures["commands, outcomes and answers paired with events"] = len(sent)
    seen = read_seen(database_url) if database_url else set()
    found = check(Evidence(read_evidence(bootstrap), kept, seen, sent, at_rest=True))
    broken = [each for each in found if not (each.invariant == "I6" and each.where in torn)]
    for name, about in INVARIANTS.items():
        report.nothing(f"{name} broken: {about}", [_said(each) for each in broken if each.invariant == name])
    # a writer of an epoch that is over, or in a partition that is not its own, would be found here
    report.nothing("foreign records in the log", list(map(str, foreign_records(bootstrap))))


def described(loss: Loss) -> str:
    """One line for the report."""
    kind = loss.command_type.rpartition(".")[2] or "a command that retention has removed"
    events = ", ".join(map(_event, loss.events))
    again = f"; now {loss.again.kind} again at version {loss.again.version}" if loss.again else ""
    return f"{loss.at} {kind} {loss.command_id} of {loss.subject}{_amounts(loss)}: {events}{again}"


def _amounts(loss: Loss) -> str:
    """Money in its currency and units, in brackets; empty where there are none."""
    currency = loss.amounts.get("currency", "")
    money = [
        f"{name} {int(loss.amounts[name]) / MICROS:.2f} {currency}".rstrip()
        for name in ("gross", "refund")
        if name in loss.amounts
    ]
    units = [f"{loss.amounts[name]} units" for name in ("units", "quantity") if name in loss.amounts]
    return f" ({', '.join([*money, *units])})" if money or units else ""


def _event(record: LostRecord) -> str:
    place = f"{record.topic}/{record.partition}/{record.offset}"
    return f"{record.type.rpartition('.')[2]} {record.event_id} at {place}"


def _said(violation: Violation) -> str:
    return f"{violation.where}: {violation.what}"
