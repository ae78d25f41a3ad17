"""What a cut mirror lost is listed exactly; an acknowledged command can be sent again or written off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from contracts.kernel.records import Answer, LossReissued, Outcome, SiteRole
from infra.base.errors import NotDone
from infra.base.waiting import wait_until
from infra.dr.losses import Report, report_losses, torn_at
from infra.dr.mirror import seed
from infra.dr.reconcile import chosen, load, reissue, save, standings, write_off
from infra.dr.report import with_repeats
from infra.lab.checker.evidence import read_evidence
from infra.log.control import write_role
from services.kernel.record.codec import encode
from services.kernel.record.envelope import now_micros, uuid7
from tests.contract.log_rule_cases import OTHER, LogRecord, event, opening
from tests.foreign_records import planted, write_log
from tests.integration.kernel.client import Client
from tests.integration.sites import shop
from tests.integration.sites.conftest import Start

OPERATOR = "0d5e-operator"
CROSSED, LOST, SHIPPED, CANCELLED = (f"o-{name}" for name in ("crossed", "lost", "shipped", "cancelled"))
FORGED, ANSWERS = "o-forged", "order.answers"


@dataclass(frozen=True)
class Failover:
    """A shop whose mirror stopped in the middle: `told` is what clients heard of what they asked after it."""

    old: str
    new: str
    outcomes: dict[str, Outcome]
    ends: dict[shop.Place, int]

    def losses(self) -> Report:
        return report_losses(self.old, self.new, shop.switch("home", "away", "unplanned", 2, self.ends))


@dataclass(frozen=True)
class Reported(Failover):
    report: Report


@contextmanager
def clients(bootstrap: str) -> Iterator[tuple[Client, Client]]:
    orders, stock = Client(bootstrap, "order"), Client(bootstrap, "inventory")
    try:
        yield orders, stock
    finally:
        orders.close()
        stock.close()


def execute(client: Client, command: object, key: str) -> Outcome:
    command_id = uuid7()
    client.send(command, key, command_id)
    client.flush()
    return client.wait_for({command_id})[command_id]


def at_rest(bootstrap: str, expected: dict[str, str]) -> None:
    """Until the last event of each order is of this type."""
    wait_until(
        lambda: {event.key: event.metadata.type for event in read_evidence(bootstrap, ["order.events"])},
        f"the orders end with {expected}",
        60,
        enough=lambda last: all(last.get(key) == f"daybook.order.{kind}" for key, kind in expected.items()),
    )


def not_answers() -> list[LogRecord]:
    """Bytes that cannot be read, a tombstone, a record of another type, and an answer under another key."""
    outcome = Outcome(uuid7(), "", FORGED, "", "refused", 0, (), "", "", "", "", replayed=False)
    value = encode(ANSWERS, Answer(outcome, now_micros()))
    role = encode("site.control", SiteRole("away", "active", 2))
    values = (b"garbage", None, role, value)
    return [LogRecord(key, value, ()) for key in (b"\xff\xfe", None) for value in values]


@pytest.fixture(scope="module")
def failover(two_brokers: tuple[str, str], start_worker: Start) -> Reported:
    old, new = two_brokers
    workers = [start_worker(old, service) for service in ("order", "inventory")]
    for worker in workers:
        worker.wait_ready()
    with clients(old) as (orders, stock):
        execute(stock, shop.receive("tea", 100), "tea")
        for order_id in (CROSSED, CANCELLED):
            execute(orders, shop.place_order(order_id, "tea", 3), order_id)
        at_rest(old, {CROSSED: "OrderConfirmed", CANCELLED: "OrderConfirmed"})
        cuts = shop.ends(old)
        outcomes = [
            execute(orders, shop.place_order(LOST, "tea", 4), LOST),
            execute(orders, shop.place_order(SHIPPED, "tea", 5), SHIPPED),
        ]
        at_rest(old, {LOST: "OrderConfirmed", SHIPPED: "OrderConfirmed"})
        # the mirror of stock stopped a little later than that of orders
        cuts |= {
            position: end for position, end in shop.ends(old).items() if position[0] == "inventory.events"
        }
        outcomes.append(execute(orders, shop.ship(SHIPPED), SHIPPED))
        outcomes.append(execute(orders, shop.cancel(CANCELLED), CANCELLED))
        at_rest(old, {SHIPPED: "MovementsRecorded", CANCELLED: "MovementsRecorded"})
        outcomes.append(execute(stock, shop.receive("cups", 7), "cups"))
        outcomes.append(execute(orders, shop.ship(CANCELLED), CANCELLED))
        outcomes.append(execute(orders, shop.ship("o-unknown"), "o-unknown"))
    for worker in workers:
        worker.end()
    shop.mirror(old, new, cuts)
    seed(new, "home", {partition: cut - 1 for partition, cut in cuts.items() if cut})
    recorded = {partition: end - 1 for partition, end in shop.ends(new).items()}
    # what is no event, or not of the log, cannot be lost; what a forger wrote is listed like any event
    write_log(old, [entry.record for entry in planted() if not entry.stops])
    write_log(old, [event(1, OTHER, event_id="not a UUID"), opening(2)])
    for broker in (old, new):
        write_log(broker, not_answers(), ANSWERS)
    write_log(old, [LogRecord(b"\xff", b"garbage", (("ce_id", b"\xff"),))], "order.commands")
    write_role(new, SiteRole("away", "active", 2))
    done = Failover(old, new, {entry.command_id: entry for entry in outcomes}, recorded)
    return Reported(done.old, done.new, done.outcomes, done.ends, done.losses())


def test_what_is_lost_is_exactly_what_one_log_has_and_the_other_has_not(failover: Reported) -> None:
    there = {event.metadata.id for event in read_evidence(failover.new)}
    lost = [event for event in read_evidence(failover.old) if event.metadata.id not in there]
    listed = [event for loss in failover.report.losses for event in loss.events]
    assert sorted(event.event_id for event in listed) == sorted(event.metadata.id for event in lost)
    positions = {
        event.event_id: (event.topic, event.partition, event.offset, event.version) for event in listed
    }
    assert positions == {
        event.metadata.id: (event.topic, event.partition, event.offset, event.metadata.version)
        for event in lost
    }


def test_foreign_records_and_openings_are_no_losses(failover: Reported) -> None:
    subjects = {loss.subject: loss for loss in failover.report.losses}
    assert not subjects.keys() & {entry.key for entry in planted()}
    assert FORGED not in subjects
    assert not subjects[OTHER].acknowledged
    assert all(event.version for loss in failover.report.losses for event in loss.events)


def test_every_answer_that_a_client_had_is_listed_with_its_amount(failover: Reported) -> None:
    assert failover.report.verdict == "listed"
    losses = {loss.command_id: loss for loss in failover.report.acknowledged}
    assert losses.keys() == failover.outcomes.keys()
    for command_id, outcome in failover.outcomes.items():
        loss = losses[command_id]
        assert (loss.subject, loss.outcome, loss.code) == (outcome.subject, outcome.kind, outcome.code)
        assert loss.command_type == outcome.command_type
        assert [event.event_id for event in loss.events] == list(outcome.event_ids)
    placed = next(loss for loss in losses.values() if loss.subject == LOST)
    assert placed.amounts == {"gross": 10_000_000, "units": 4, "currency": "EUR"}


def test_what_was_cut_through_is_named(failover: Reported) -> None:
    how = {cut.order_id: cut.how for cut in failover.report.conversations}
    assert how == {LOST: "order lost", SHIPPED: "order lost", CANCELLED: "both behind"}
    assert failover.report.parted == ()
    crossed = {event.metadata.transaction.split("/")[0] for event in read_evidence(failover.new)}
    torn = {entry.id for entry in failover.report.torn_transactions}
    assert torn == {entry.id for entry in torn_at(failover.new)} and torn <= crossed


def test_a_lost_refusal_says_what_a_repeat_would_return_now(failover: Reported) -> None:
    notes = list[str]()
    report = with_repeats(failover.new, failover.report, notes.append, 60)
    repeats = {loss.subject: loss.repeat for loss in report.acknowledged if loss.outcome == "refused"}
    assert repeats == {CANCELLED: "accepted", "o-unknown": "refused: order_not_found"}
    assert all(not loss.repeat for loss in report.losses if loss.outcome == "accepted") and not notes


def test_what_a_repeat_would_return_is_missing_where_it_is_not_read_in_time(failover: Reported) -> None:
    notes = list[str]()
    report = with_repeats(failover.new, failover.report, notes.append, 0)
    assert report == failover.report
    assert len(notes) == 1 and notes[0].startswith(
        "what repeats of lost order refusals would return was not read"
    )


def test_lost_commands_are_sent_again_in_order_or_written_off(
    failover: Reported, start_worker: Start, tmp_path: Path
) -> None:
    save(failover.report, tmp_path / "kept" / "report.json")
    kept = load(tmp_path / "kept" / "report.json")
    assert kept == failover.report
    for service in ("order", "inventory"):
        start_worker(failover.new, service).wait_ready()
    entries = standings(failover.new, kept)
    open_ids = {entry.loss.command_id for entry in entries if entry.state == "open"}
    assert open_ids == {entry for entry, outcome in failover.outcomes.items() if outcome.kind == "accepted"}
    refused = [entry for entry in entries if entry.loss.outcome == "refused"]
    with pytest.raises(NotDone, match="promised nothing"):
        reissue(failover.new, kept, refused, OPERATOR, lambda _: None)

    cups = next(entry for entry in entries if entry.loss.subject == "cups")
    write_off(failover.new, kept, chosen(entries, [cups.loss.command_id]), "counted by hand")
    again = [entry for entry in entries if entry.state == "open" and entry is not cups]
    seen: list[str] = []
    done = reissue(failover.new, kept, again, OPERATOR, lambda standing: seen.append(standing.loss.subject))
    assert seen == [LOST, SHIPPED, SHIPPED, CANCELLED]
    kinds = {
        entry.loss.command_id: entry.decision.outcome
        for entry in done
        if isinstance(entry.decision, LossReissued)
    }
    assert kinds == dict.fromkeys(open_ids - {cups.loss.command_id}, "accepted")

    states = {entry.loss.command_id: entry.state for entry in standings(failover.new, kept)}
    assert states[cups.loss.command_id] == "written off"
    assert {states[entry.loss.command_id] for entry in again} == {"reissued"}
    with pytest.raises(NotDone, match="is not open: reissued"):
        entries = standings(failover.new, kept)
        write_off(failover.new, kept, [entry for entry in entries if entry.state == "reissued"][:1], "twice")
    # a client does not tell us that it repeats its command: the report still has it open
    with pytest.raises(NotDone, match="its client has repeated it"):
        write_off(failover.new, kept, again[:1], "executed meanwhile")

    # once more under the same ids changes nothing
    events = len(read_evidence(failover.new, ["order.events"]))
    reissue(failover.new, kept, again, OPERATOR, lambda _: None)
    at_rest(failover.new, {SHIPPED: "MovementsRecorded", CANCELLED: "MovementsRecorded"})
    commands = [event.metadata.causation_id for event in read_evidence(failover.new, ["order.events"])]
    assert all(commands.count(entry.loss.command_id) == 1 for entry in again)
    ids = {entry.loss.command_id for entry in again}
    sent_again = [event for event in read_evidence(failover.new) if event.metadata.causation_id in ids]
    assert {event.metadata.auth.operator for event in sent_again} == {OPERATOR}
    assert events <= len(commands) <= events + 2

    later = failover.losses()
    assert {loss.command_id for loss in later.losses if loss.again} >= {
        entry.loss.command_id for entry in again
    }
    assert {(entry.subject, entry.version) for entry in later.parted} >= {(LOST, 1), (CANCELLED, 3)}


def test_a_name_that_fits_no_entry_or_several_is_refused(failover: Reported) -> None:
    with pytest.raises(NotDone, match="names 0"):
        chosen(standings(failover.new, failover.report), ["nothing"])
