"""The checker is checked: a good log passes, and each seeded fault is caught under its invariant's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from contracts.inventory.commands import ReserveStock
from contracts.inventory.events import StockIssued, StockReceived, StockReleased, StockReserved
from contracts.kernel.records import Answer, OutcomeBatch
from contracts.order.events import (
    Line,
    MovementsRecorded,
    OrderConfirmed,
    OrderPlaced,
    OrderRejected,
    OrderReturned,
    OrderShipped,
    RefundedLine,
    ReservationsRecorded,
)
from infra.lab.checker.evidence import Acknowledged, Evidence, Sent
from infra.lab.checker.invariants import check
from services.kernel.record.envelope import ReplyAddress
from tests.unit.checker.written_log import Log, metadata

MICRO = 1_000_000


def good() -> Evidence:
    """Two orders: O is confirmed, shipped and returned; R is rejected, and its hold released."""
    log, order, stock = Log(), "order.events", "inventory.events"
    log.append(stock, "A", "receive-a", StockReceived("A", 10, "delivery", 0))
    log.append(stock, "B", "receive-b", StockReceived("B", 5, "delivery", 0))
    lines = (Line("A", 2, 3 * MICRO), Line("B", 1, MICRO))
    log.append(order, "O", "place-o", OrderPlaced("O", "UK", "GBP", 0, lines, None, (), 7 * MICRO))
    log.append(stock, "A", "reserve-o-a", StockReserved("A", "O", 2, 0))
    log.append(order, "O", "told-reserve-o-a", ReservationsRecorded("O", 0, ("A",)))
    log.append(stock, "B", "reserve-o-b", StockReserved("B", "O", 1, 0))
    log.append(order, "O", "told-reserve-o-b", OrderConfirmed("O", 0, ("B",), "UK", "GBP", 3, 7 * MICRO))
    log.append(
        order, "R", "place-r", OrderPlaced("R", "UK", "GBP", 0, (Line("A", 1, MICRO),), None, (), MICRO)
    )
    log.append(stock, "A", "reserve-r-a", StockReserved("A", "R", 1, 0))
    log.append(order, "R", "told-reserve-r-a", OrderRejected("R", 0, ("X",), ("A",)))
    log.append(stock, "A", "release-r-a", StockReleased("A", "R", 1, 0))
    log.append(order, "O", "ship-o", OrderShipped("O", 0, ("A", "B")))
    log.append(stock, "A", "issue-o-a", StockIssued("A", "O", 2, 0))
    log.append(stock, "B", "issue-o-b", StockIssued("B", "O", 1, 0))
    log.append(order, "O", "told-issue-o-a", MovementsRecorded("O", 0, ()))
    back = OrderReturned(
        "O", 0, 1, "broken", "UK", "GBP", (RefundedLine("A", 1, 3 * MICRO),), 1, 3 * MICRO, False
    )
    log.append(order, "O", "return-o", back)
    log.refuse(order, "O", "refused-1", "already_shipped")
    acknowledged = [
        Acknowledged("place-o", "O", "accepted", 1, ("O-1",)),
        Acknowledged("place-r", "R", "accepted", 1, ("R-1",)),
        Acknowledged("refused-1", "O", "refused", 3, (), "already_shipped"),
    ]
    seen = {recorded.metadata.id for recorded in log.events}
    return Evidence(log.events, acknowledged, seen, log.sent, at_rest=True)


def at(evidence: Evidence, key: str, version: int) -> int:
    return next(
        index
        for index, recorded in enumerate(evidence.events)
        if recorded.key == key and recorded.metadata.version == version
    )


def changed(evidence: Evidence, key: str, version: int, **fields: Any) -> Evidence:
    index = at(evidence, key, version)
    old = evidence.events[index]
    evidence.events[index] = replace(old, event=replace(old.event, **fields))
    return evidence


def meta_changed(evidence: Evidence, key: str, version: int, **fields: Any) -> Evidence:
    index = at(evidence, key, version)
    old = evidence.events[index]
    evidence.events[index] = replace(old, metadata=old.metadata._replace(**fields))
    return evidence


def dropped(evidence: Evidence) -> Evidence:
    del evidence.events[at(evidence, "O", 1)]
    return evidence


def dropped_at_the_end(evidence: Evidence) -> Evidence:
    del evidence.events[at(evidence, "R", 2)]
    return evidence


def doubled(evidence: Evidence) -> Evidence:
    evidence.events.append(evidence.events[at(evidence, "O", 1)])
    return evidence


def swapped(evidence: Evidence) -> Evidence:
    first, second = at(evidence, "O", 2), at(evidence, "O", 3)
    events = evidence.events
    events[first], events[second] = events[second], events[first]
    return evidence


def executed_twice(evidence: Evidence) -> Evidence:
    return meta_changed(evidence, "O", 4, causation_id="place-o")


def torn(evidence: Evidence) -> Evidence:
    return meta_changed(evidence, "O", 4, transaction="ship-o/0/2")


def aborted_visible(evidence: Evidence) -> Evidence:
    evidence.seen = {*evidence.seen, "an-aborted-event"}
    return evidence


def negative_stock(evidence: Evidence) -> Evidence:
    return changed(evidence, "A", 1, quantity=1)


def double_release(evidence: Evidence) -> Evidence:
    index = at(evidence, "A", 4)
    again = evidence.events[index]
    metadata = again.metadata._replace(id="A-again", version=6, causation_id="again", transaction="again/0/1")
    evidence.events.append(replace(again, metadata=metadata))
    return evidence


def never_released(evidence: Evidence) -> Evidence:
    return changed(evidence, "A", 4, order_id="another")


def refused_yet_done(evidence: Evidence) -> Evidence:
    evidence.acknowledged.append(Acknowledged("ship-o", "O", "refused", 3, (), "not_confirmed"))
    return evidence


def lost_acknowledgement(evidence: Evidence) -> Evidence:
    evidence.acknowledged.append(Acknowledged("place-z", "Z", "accepted", 1, ("Z-1",)))
    return evidence


def two_answers(evidence: Evidence) -> Evidence:
    evidence.acknowledged.append(Acknowledged("refused-1", "O", "refused", 3, (), "not_confirmed"))
    return evidence


def foreign_partition(evidence: Evidence) -> Evidence:
    index = at(evidence, "O", 1)
    old = evidence.events[index]
    evidence.events[index] = replace(old, partition=1 - old.partition)
    return evidence


def older_epoch(evidence: Evidence) -> Evidence:
    return meta_changed(evidence, "A", 5, epoch=0)


def wrong_gross(evidence: Evidence) -> Evidence:
    return changed(evidence, "O", 3, gross=8 * MICRO)


def too_much_refund(evidence: Evidence) -> Evidence:
    line = RefundedLine("A", 9, 9 * MICRO)
    return changed(evidence, "O", 6, lines=(line,), refund=9 * MICRO)


def still_open(evidence: Evidence) -> Evidence:
    log = Log()
    log.append("order.events", "P", "place-p", OrderPlaced("P", "UK", "GBP", 0, (), None, (), 0))
    evidence.events.extend(log.events)
    return evidence


def without(evidence: Evidence, fits: Callable[[Sent], bool]) -> Evidence:
    kept = [record for record in evidence.sent if not fits(record)]
    assert len(kept) < len(evidence.sent)
    return replace(evidence, sent=kept)


def named(name: str) -> Callable[[Sent], bool]:
    return lambda record: record.metadata is not None and record.metadata.id == name


def command_lost_and_sent_again(evidence: Evidence) -> Evidence:
    """The event was committed without its command; a retry repaired it, and nothing else shows it."""
    lost = next(filter(named("reserve-o-a"), evidence.sent))
    assert lost.metadata is not None
    again = replace(lost, transaction="later", metadata=lost.metadata._replace(causation_id="O"))
    return replace(evidence, sent=[again if record is lost else record for record in evidence.sent])


def command_without_its_event(evidence: Evidence) -> Evidence:
    """An order was rolled back, yet its command went out."""
    about = metadata("reserve-q-a", ReserveStock.TYPE, "A", "Q-1")
    about = about._replace(reply_to=ReplyAddress("order.commands", None, "", "Q"))
    evidence.sent.append(Sent("inventory.commands", "A", "place-q", about, ReserveStock("A", "Q", 1, 0)))
    return evidence


def command_in_another_transaction(evidence: Evidence) -> Evidence:
    sent = [
        replace(record, transaction="another") if named("issue-o-a")(record) else record
        for record in evidence.sent
    ]
    return replace(evidence, sent=sent)


def no_outcome(evidence: Evidence) -> Evidence:
    return without(
        evidence, lambda record: record.topic == "order.outcomes" and record.transaction == "ship-o"
    )


def outcome_without_its_event(evidence: Evidence) -> Evidence:
    del evidence.events[at(evidence, "B", 3)]
    return evidence


def unrecorded_outcome(evidence: Evidence) -> Evidence:
    return without(evidence, lambda record: record.topic == "order.answers")


def recorded_without_outcome(evidence: Evidence) -> Evidence:
    return without(
        evidence, lambda record: record.topic == "order.outcomes" and record.transaction == "refused-1"
    )


def executed_uncommitted(evidence: Evidence) -> Evidence:
    """A worker read the command of an order that was rolled back."""
    return without(evidence, named("ship-o"))


FAULTS: list[tuple[str, Callable[[Evidence], Evidence]]] = [
    ("I1", dropped),
    ("I9", dropped_at_the_end),
    ("I1", lost_acknowledgement),
    ("I2", executed_twice),
    ("I2", refused_yet_done),
    ("I2", two_answers),
    ("I3", dropped),
    ("I3", doubled),
    ("I3", swapped),
    ("I5", aborted_visible),
    ("I5", executed_uncommitted),
    ("I6", torn),
    ("I6", command_lost_and_sent_again),
    ("I6", command_without_its_event),
    ("I6", command_in_another_transaction),
    ("I6", no_outcome),
    ("I6", outcome_without_its_event),
    ("I6", unrecorded_outcome),
    ("I6", recorded_without_outcome),
    ("I7", negative_stock),
    ("I7", double_release),
    ("I8", wrong_gross),
    ("I8", too_much_refund),
    ("I9", double_release),
    ("I9", never_released),
    ("I9", still_open),
    ("I10", foreign_partition),
    ("I10", older_epoch),
]


def test_a_good_log_passes() -> None:
    assert check(good()) == []


def test_a_passive_site_has_the_events_and_recorded_outcomes_alone() -> None:
    there = good()
    mirrored = [record for record in there.sent if isinstance(record.body, Answer)]
    assert mirrored
    assert check(replace(there, sent=mirrored)) == []


def test_a_command_that_is_sent_again_may_have_two_outcomes_in_one_transaction() -> None:
    evidence = good()
    first = next(filter(named("told-reserve-o-a"), evidence.sent))
    (outcome,) = first.body.outcomes
    again = replace(first, body=OutcomeBatch((outcome, replace(outcome, event_ids=(), request_hash=""))))
    assert (
        check(replace(evidence, sent=[again if record is first else record for record in evidence.sent]))
        == []
    )


@pytest.mark.parametrize(
    ("invariant", "fault"), FAULTS, ids=[f"{name}-{fault.__name__}" for name, fault in FAULTS]
)
def test_a_seeded_fault_is_caught(invariant: str, fault: Callable[[Evidence], Evidence]) -> None:
    assert invariant in {violation.invariant for violation in check(fault(good()))}
