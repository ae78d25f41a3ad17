"""I6 across topics: what one transaction wrote beside its events is there with them, and nothing else is.

Each rule is checked in both directions, from the records alone: an event and the commands that it calls for,
an event and the outcome of its command, an outcome without events and its recorded outcome. A retry sends a
missing command again, but not in the event's transaction: a torn pair is found though it did no lasting harm.

Commands and outcomes are not mirrored: events of an epoch in which the other site wrote have none here, and
are left out, as are its recorded outcomes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from contracts.inventory import commands as stock
from contracts.kernel.records import Answer, Outcome, OutcomeBatch
from contracts.order import events as order
from infra.lab.checker.evidence import Recorded, Sent

Found = Iterator[tuple[str, str]]


@dataclass
class _Site:
    """One site's records, found by what relates them. Outcomes: by transaction and command id; a command that
    was sent again has several."""

    events: dict[str, Recorded] = field(default_factory=dict)
    own: list[Recorded] = field(default_factory=list)
    commands: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    caused: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    outcomes: dict[tuple[str, str], list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    recorded: dict[tuple[str, str], Outcome] = field(default_factory=dict)


def causes_are_committed(events: list[Recorded], sent: list[Sent]) -> Found:
    """I5: a worker executes only what is committed."""
    site = _site(events, sent)
    for event in site.own:
        if (cause := event.metadata.causation_id) not in site.commands:
            yield event.key, f"event {event.metadata.id}: its command {cause} is not committed"


def records_are_paired(events: list[Recorded], sent: list[Sent]) -> Found:
    """I6: all records of a transaction are there, or none."""
    site = _site(events, sent)
    for event in site.own:
        yield from _commands_of(event, site)
        yield from _outcome_of(event, site)
    for causing, commands in site.caused.items():
        for command in commands:
            yield from _event_of(causing, command, site)
    for (transaction, command_id), outcomes in site.outcomes.items():
        yield from _effects_of(transaction, outcomes, site)
        if any(map(_is_recorded, outcomes)) and (transaction, command_id) not in site.recorded:
            yield command_id, f"its outcome is not recorded in transaction {transaction}"
    for transaction, command_id in site.recorded.keys() - site.outcomes.keys():
        yield command_id, f"its recorded outcome has no outcome in transaction {transaction}"


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
    # Not by their commands: a client may repeat at this site what the other one executed. Nor by recorded
    # outcomes: they are mirrored.
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


def _called_for(event: object) -> set[tuple[str, str]]:
    """Type and SKU of each command that an event makes the order send."""
    match event:
        case order.OrderPlaced(lines=lines):
            return {(stock.ReserveStock.TYPE, line.sku) for line in lines}
        case (
            order.OrderRejected(release=skus)
            | order.OrderCancelled(release=skus)
            | order.OrderExpired(release=skus)
        ):
            return {(stock.ReleaseStock.TYPE, sku) for sku in skus}
        case order.OrderShipped(issue=skus):
            return {(stock.IssueStock.TYPE, sku) for sku in skus}
        case order.OrderReturned(lines=returned):
            return {(stock.ReturnStock.TYPE, line.sku) for line in returned}
        case _:
            return set()


def _commands_of(event: Recorded, site: _Site) -> Found:
    there = {
        (command.metadata.type, command.key)
        for command in site.caused[event.metadata.id]
        if command.metadata is not None
    }
    for kind, sku in sorted(_called_for(event.event) - there):
        yield event.key, f"event {event.metadata.id}: {kind} to {sku} was not sent with it"


def _event_of(causing: str, command: Sent, site: _Site) -> Found:
    event = site.events.get(causing)
    if event is None or _transaction(event) != command.transaction:
        yield command.key, f"{command.body}: its event {causing} is not in transaction {command.transaction}"


def _outcome_of(event: Recorded, site: _Site) -> Found:
    """A command that wants no outcome (a deadline) gets none."""
    cause = event.metadata.causation_id
    if any(command.metadata is None or command.metadata.reply_to is None for command in site.commands[cause]):
        return
    outcomes = site.outcomes.get((_transaction(event), cause), [])
    if not any(event.metadata.id in outcome.event_ids for outcome in outcomes):
        yield event.key, f"event {event.metadata.id}: the outcome of {cause} is not in its transaction"


def _effects_of(transaction: str, outcomes: list[Outcome], site: _Site) -> Found:
    for outcome in outcomes:
        for event_id in outcome.event_ids:
            event = site.events.get(event_id)
            if event is None or _transaction(event) != transaction:
                yield outcome.command_id, f"its event {event_id} is not in transaction {transaction}"


def _is_recorded(outcome: Outcome) -> bool:
    """Whether an outcome leaves no event, and a repeat of its command gets it again."""
    if outcome.event_ids or outcome.kind == "failed" or outcome.code == "idempotency_key_reused":
        return False
    return outcome.kind != "accepted" or bool(outcome.request_hash)
