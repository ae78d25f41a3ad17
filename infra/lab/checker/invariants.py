"""The invariants over the raw log, under their names in docs/reference/guarantees.md: evidence in, violations out.

None of it uses the domain's code.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from contracts.inventory import commands as stock_commands
from contracts.inventory import events as stock
from contracts.kernel.records import Answer, Outcome, OutcomeBatch
from contracts.order import events as order
from infra.lab.checker.evidence import Acknowledged, Evidence, Recorded, Sent
from infra.lab.checker.oracle import Ledger, goods_value, gross
from services.kernel.record.envelope import partition_of


@dataclass(frozen=True)
class Violation:
    invariant: str
    where: str
    what: str


Violations = Iterator[Violation]


def check(evidence: Evidence) -> list[Violation]:
    """The violations of every invariant; empty where there are none."""
    events, acknowledged = evidence.events, evidence.acknowledged
    site = _site(events, evidence.sent)
    return [
        *_consistent_outcomes(acknowledged),
        *_acknowledged_is_logged(events, acknowledged),
        *_single_effect(events),
        *_versions(events),
        *_single_writer(events),
        *_nothing_aborted(events, evidence.seen),
        *_transactions_are_whole(events),
        *_causes_are_committed(site),
        *_records_are_paired(site),
        *_stock(events).violations,
        *_money_is_conserved(events),
        *conversations_end(events, evidence.at_rest),
    ]


def _acknowledged_is_logged(events: list[Recorded], acknowledged: list[Acknowledged]) -> Violations:
    by_cause: dict[str, list[Recorded]] = defaultdict(list)
    for recorded in events:
        by_cause[recorded.metadata.causation_id].append(recorded)
    for outcome in acknowledged:
        logged = by_cause[outcome.command_id]
        ids = tuple(recorded.metadata.id for recorded in logged)
        if outcome.kind != "accepted" and logged:
            yield Violation("I2", outcome.command_id, f"{outcome.kind} ({outcome.code}), yet it left {ids}")
        if outcome.kind == "accepted" and set(outcome.event_ids) - set(ids):
            what = f"acknowledged events {outcome.event_ids}, logged {ids}"
            yield Violation("I1", outcome.command_id, what)
        if outcome.event_ids and logged and logged[-1].metadata.version != outcome.version:
            what = f"acknowledged version {outcome.version}, logged another"
            yield Violation("I1", outcome.command_id, what)


def _consistent_outcomes(acknowledged: list[Acknowledged]) -> Violations:
    first: dict[str, Acknowledged] = {}
    for outcome in acknowledged:
        if first.setdefault(outcome.command_id, outcome) != outcome:
            what = f"acknowledged {first[outcome.command_id]}, then {outcome}"
            yield Violation("I2", outcome.command_id, what)


def _single_effect(events: list[Recorded]) -> Violations:
    transactions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for recorded in events:
        transactions[recorded.key, recorded.metadata.causation_id].add(_transaction(recorded))
    for (key, cause), names in transactions.items():
        if len(names) > 1:
            yield Violation("I2", key, f"command {cause} had an effect in {len(names)} transactions")


def _versions(events: list[Recorded]) -> Violations:
    last: dict[tuple[str, str], int] = defaultdict(int)
    ids: set[str] = set()
    for recorded in events:
        stream, version = (recorded.topic, recorded.key), recorded.metadata.version
        at = f"{recorded.topic}/{recorded.partition}/{recorded.offset}"
        if version != last[stream] + 1:
            yield Violation("I3", recorded.key, f"version {version} follows {last[stream]} at {at}")
        if recorded.verdict == "suspect":
            yield Violation("I3", recorded.key, f"version {version} at {at} is not its owner's: decide")
        if recorded.event is None:
            yield Violation("I3", recorded.key, f"version {version} at {at} cannot be decoded")
        last[stream] = max(version, last[stream])
        if recorded.metadata.id in ids:
            yield Violation("I3", recorded.key, f"event id {recorded.metadata.id} occurs twice")
        ids.add(recorded.metadata.id)


def _single_writer(events: list[Recorded]) -> Violations:
    epochs: dict[tuple[str, int], int] = {}
    for recorded in events:
        if partition_of(recorded.key, recorded.partitions) != recorded.partition:
            yield Violation("I10", recorded.key, f"is in the wrong partition {recorded.partition}")
        partition, epoch = (recorded.topic, recorded.partition), recorded.metadata.epoch
        if epoch < epochs.get(partition, epoch):
            yield Violation("I10", recorded.key, f"epoch {epoch} after {epochs[partition]}")
        epochs[partition] = epoch


def _nothing_aborted(events: list[Recorded], seen: Iterable[str]) -> Violations:
    committed = {recorded.metadata.id for recorded in events}
    for event_id in seen:
        if event_id not in committed:
            yield Violation("I5", event_id, "a reader applied an event that is not committed")


def _transactions_are_whole(events: list[Recorded]) -> Violations:
    members: dict[tuple[str, int], list[int]] = defaultdict(list)
    for recorded in events:
        parts = recorded.metadata.transaction.split("/")
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            yield Violation("I6", recorded.key, f"event {recorded.metadata.id} names no transaction")
            continue
        members[parts[0], int(parts[2])].append(int(parts[1]))
    for (name, size), indexes in members.items():
        if sorted(indexes) != list(range(size)):
            yield Violation("I6", name, f"{size} events were written, {sorted(indexes)} are there")


# I5 and I6 across topics: whatever a transaction wrote beside its events is there with them, and nothing else is. Each
# rule is checked in both directions, from the records alone: an event and the commands that it calls for, an event and
# the outcome of its command, an outcome without events and its recorded outcome. A retry sends a missing command again,
# but not in the event's transaction: a torn pair is detected although it did no lasting harm.
#
# Commands and outcomes are not mirrored: events of an epoch in which the other site wrote have none here. They are left
# out, as are their recorded outcomes.


@dataclass
class _Site:
    """The records of a site, indexed by their relations. `own` are the events that it wrote itself. Outcomes are by
    transaction and command id; a command that was sent again has several."""

    events: dict[str, Recorded] = field(default_factory=dict)
    own: list[Recorded] = field(default_factory=list)
    commands: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    caused: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    outcomes: dict[tuple[str, str], list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    recorded: dict[tuple[str, str], Outcome] = field(default_factory=dict)


def _site(events: list[Recorded], sent: list[Sent]) -> _Site:
    site = _Site({event.metadata.id: event for event in events})
    for record in sent:
        if record.metadata is not None:
            site.commands[record.metadata.id].append(record)
            if not _is_a_retry(record):
                site.caused[record.metadata.causation_id].append(record)
        match record.body:
            case OutcomeBatch(outcomes=outcomes):
                for outcome in outcomes:
                    if not outcome.replayed:
                        site.outcomes[record.transaction, outcome.command_id].append(outcome)
            case Answer(outcome=outcome):
                site.recorded[record.transaction, outcome.command_id] = outcome
    # Not by their commands: a client may repeat at this site what the other one executed. Nor by recorded outcomes:
    # they are mirrored.
    written = {record.transaction for record in sent if not isinstance(record.body, Answer)}
    epochs = {event.metadata.epoch for event in events if _transaction(event) in written}
    site.own = [event for event in events if event.metadata.epoch in epochs]
    if len(site.own) < len(events):
        site.recorded = {name: outcome for name, outcome in site.recorded.items() if name[0] in written}
    return site


def _is_a_retry(record: Sent) -> bool:
    """Whether no event caused it: it comes from a client, is an outcome, or was sent because time passed."""
    meta = record.metadata
    if meta is None or not record.transaction or meta.causation_id in (meta.id, meta.subject):
        return True
    return meta.reply_to is not None and meta.causation_id == meta.reply_to.key


def _transaction(event: Recorded) -> str:
    return event.metadata.transaction.partition("/")[0]


def _causes_are_committed(site: _Site) -> Violations:
    """A worker executes only what is committed."""
    for event in site.own:
        if (cause := event.metadata.causation_id) not in site.commands:
            what = f"event {event.metadata.id}: its command {cause} is not committed"
            yield Violation("I5", event.key, what)


def _records_are_paired(site: _Site) -> Violations:
    """All records of a transaction are there, or none."""
    for event in site.own:
        yield from _has_its_commands(event, site)
        yield from _has_its_outcome(event, site)
    for cause, commands in site.caused.items():
        for command in commands:
            event_of_cause = site.events.get(cause)
            if event_of_cause is None or _transaction(event_of_cause) != command.transaction:
                what = f"{command.body}: its event {cause} is not in transaction {command.transaction}"
                yield Violation("I6", command.key, what)
    for (transaction, command_id), outcomes in site.outcomes.items():
        yield from _has_its_events(transaction, outcomes, site)
        if any(map(_is_recorded, outcomes)) and (transaction, command_id) not in site.recorded:
            what = f"its outcome is not recorded in transaction {transaction}"
            yield Violation("I6", command_id, what)
    for transaction, command_id in site.recorded.keys() - site.outcomes.keys():
        what = f"its recorded outcome has no outcome in transaction {transaction}"
        yield Violation("I6", command_id, what)


def _called_for(event: object) -> set[tuple[str, str]]:
    """Type and SKU of each command that an event makes the order send."""
    match event:
        case order.OrderPlaced(lines=lines):
            return {(stock_commands.ReserveStock.TYPE, line.sku) for line in lines}
        case (
            order.OrderRejected(release=skus)
            | order.OrderCancelled(release=skus)
            | order.OrderExpired(release=skus)
        ):
            return {(stock_commands.ReleaseStock.TYPE, sku) for sku in skus}
        case order.OrderShipped(issue=skus):
            return {(stock_commands.IssueStock.TYPE, sku) for sku in skus}
        case order.OrderReturned(lines=returned):
            return {(stock_commands.ReturnStock.TYPE, line.sku) for line in returned}
        case _:
            return set()


def _has_its_commands(event: Recorded, site: _Site) -> Violations:
    sent = {
        (command.metadata.type, command.key)
        for command in site.caused[event.metadata.id]
        if command.metadata is not None
    }
    for kind, sku in sorted(_called_for(event.event) - sent):
        what = f"event {event.metadata.id}: {kind} to {sku} was not sent with it"
        yield Violation("I6", event.key, what)


def _has_its_outcome(event: Recorded, site: _Site) -> Violations:
    """A command without a reply address (a deadline) gets no outcome."""
    cause = event.metadata.causation_id
    if any(command.metadata is None or command.metadata.reply_to is None for command in site.commands[cause]):
        return
    outcomes = site.outcomes.get((_transaction(event), cause), [])
    if not any(event.metadata.id in outcome.event_ids for outcome in outcomes):
        what = f"event {event.metadata.id}: the outcome of {cause} is not in its transaction"
        yield Violation("I6", event.key, what)


def _has_its_events(transaction: str, outcomes: list[Outcome], site: _Site) -> Violations:
    for outcome in outcomes:
        for event_id in outcome.event_ids:
            event = site.events.get(event_id)
            if event is None or _transaction(event) != transaction:
                what = f"its event {event_id} is not in transaction {transaction}"
                yield Violation("I6", outcome.command_id, what)


def _is_recorded(outcome: Outcome) -> bool:
    """Whether an outcome leaves no event, and a repeat of its command gets it again."""
    if outcome.event_ids or outcome.kind == "failed" or outcome.code == "idempotency_key_reused":
        return False
    return outcome.kind != "accepted" or bool(outcome.request_hash)


@dataclass
class _Stock:
    """The ledgers by SKU. `ends` are the events that ended a reservation, by SKU and order."""

    ledgers: dict[str, Ledger] = field(default_factory=lambda: defaultdict(Ledger))
    ends: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    violations: list[Violation] = field(default_factory=list)


def _stock(events: list[Recorded]) -> _Stock:
    """At every prefix nothing is below zero, and only what is reserved is released or issued."""
    all_stock = _Stock()
    for recorded in events:
        if recorded.topic == "inventory.events":
            for what in _apply(recorded, all_stock):
                all_stock.violations.append(Violation("I7", recorded.key, what))
    return all_stock


def _apply(recorded: Recorded, all_stock: _Stock) -> Iterator[str]:
    sku, event = recorded.key, recorded.event
    ledger = all_stock.ledgers[sku]
    match event:
        case stock.StockReceived():
            ledger.received += event.quantity
        case stock.StockAdjusted():
            ledger.adjusted += event.quantity
        case stock.StockReturned():
            ledger.returned += event.quantity
        case stock.StockReserved():
            if event.order_id in ledger.reservations:
                yield f"{event.order_id} has a second reservation"
            ledger.reservations[event.order_id] = event.quantity
        case stock.StockReleased() | stock.StockIssued():
            reserved = ledger.end(event.order_id)
            if event.quantity != reserved:
                yield f"{event.order_id} had reserved {reserved}, {event.quantity} ended"
            if isinstance(event, stock.StockIssued):
                ledger.issued += event.quantity
            if not (isinstance(event, stock.StockReleased) and event.order_lost):
                all_stock.ends[sku, event.order_id].append(type(event).__name__)
    if ledger.on_hand < 0 or ledger.on_hand < ledger.reserved:
        yield f"on hand {ledger.on_hand}, reserved {ledger.reserved} at version {recorded.metadata.version}"


def _money_is_conserved(events: list[Recorded]) -> Violations:
    """gross = lines + charges, the same in every event; refunds never exceed the lines."""
    gross_of: dict[str, int] = {}
    lines_of: dict[str, int] = {}
    refunded: dict[str, int] = defaultdict(int)
    for recorded in events:
        key, event = recorded.key, recorded.event
        match event:
            case order.OrderPlaced():
                lines_of[key] = goods_value(event.lines)
                gross_of[key] = gross(event.lines, event.charges)
                if event.gross != gross_of[key]:
                    yield Violation(
                        "I8", key, f"gross {event.gross}, lines and charges add up to {gross_of[key]}"
                    )
            case order.OrderConfirmed() | order.OrderCancelled():
                if event.gross != gross_of.get(key):
                    what = f"{type(event).__name__} has gross {event.gross}, it was {gross_of.get(key)}"
                    yield Violation("I8", key, what)
            case order.OrderReturned():
                refunded[key] += event.refund
                total = sum(line.refund for line in event.lines)
                if event.refund != total or refunded[key] > lines_of.get(key, 0):
                    what = f"refunds of {refunded[key]} do not fit lines of {lines_of.get(key, 0)}"
                    yield Violation("I8", key, what)


def conversations_end(events: list[Recorded], at_rest: bool) -> Violations:
    """I9: a reservation ends at most once and, at rest, exactly once for an ended or shipped order; no order stays
    placed."""
    all_stock = _stock(events)
    for (sku, order_id), ends in all_stock.ends.items():
        if len(ends) > 1:
            yield Violation("I9", sku, f"the reservation of {order_id} ended {len(ends)} times: {ends}")
    if not at_rest:
        return
    last = {
        recorded.key: recorded.event
        for recorded in events
        if recorded.topic == "order.events" and not isinstance(recorded.event, order.MovementsRecorded)
    }
    for order_id, event in last.items():
        if isinstance(event, (order.OrderPlaced, order.ReservationsRecorded)):
            yield Violation("I9", order_id, f"still open at rest: {type(event).__name__}")
    for sku, ledger in all_stock.ledgers.items():
        for order_id, units in ledger.reservations.items():
            if not isinstance(last.get(order_id), order.OrderConfirmed):
                what = f"{order_id} still has {units} reserved: {type(last.get(order_id)).__name__}"
                yield Violation("I9", sku, what)
