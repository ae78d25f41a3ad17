"""The report of a switch: each command whose outcome the old site acknowledged and did not mirror.

It also names what the consistency cut goes through: partially mirrored transactions, and conversations between two
logs. It covers the old log from the mirror's position to the switch (`infra/dr/old_log.py`), and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from contracts.kernel.records import SiteSwitch, SwitchKind
from contracts.order.events import OrderPlaced
from contracts.topics import SERVICE_OF, TOPICS
from infra.dr.effects import Again, Parted, effects
from infra.dr.old_log import EVENTS, LostEvent, Unmirrored, UnprovenPart, lost_event, unmirrored
from infra.dr.plan import Show, ends_of
from infra.log.event_log import event_in_any_epoch
from services.kernel.log.reader import Partition, newest_times, offsets_at, read_to_end
from services.kernel.record.codec import messages_in, own_headers
from services.kernel.record.envelope import Metadata, format_time, now_micros
from services.kernel.worker.takeover import horizon

Amounts: TypeAlias = dict[str, int | str]
NONE_LOST: Final = "none, proven up to the recorded ends"
Verdict: TypeAlias = Literal[
    "listed", "none, proven up to the recorded ends", "unknown between these offsets"
]
# A mirror's partitions are never that far apart.
LONGEST_MS = 3_600_000
MARGIN_MS = 10_000  # a transaction's events are recorded at one time, and written within this
# A stock event may have an earlier time than the order event that it follows: each service has its clock.
CLOCK_MS = 60_000
# How long before its outcome a command was sent: most at once; a command that waited, or was repeated, long before.
SENT_BEFORE_MS = (120_000, 3_600_000, 10**12)
FIGURES = ("gross", "refund", "units", "quantity")


@dataclass(frozen=True)
class LostRecord:
    """One lost event; `version` is its position in its stream, `at` is RFC 3339."""

    event_id: str
    type: str
    topic: str
    partition: int
    offset: int
    version: int
    at: str


@dataclass(frozen=True)
class LostRequest:
    """A command as the old site's command topic has it, to be sent again."""

    topic: str
    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Loss:
    """One command whose outcome was not mirrored.

    `outcome` is the one that clients received (accepted, refused, …), `acknowledged` whether it came over HTTP:
    orders and stock repeat their own commands by themselves. `amounts` holds money in micros of
    `currency`, and units. `version` is that of the stream before the first lost event; 0 for refusals. `customer_id`
    is empty for guests, `repeat` is what a repeat of a refusal would return now (`infra/dr/report.py`). Only
    acknowledged commands have a `command_type` in every case.
    """

    command_id: str
    command_type: str
    subject: str
    service: str
    outcome: str
    code: str
    acknowledged: bool
    epoch: int
    at: str
    version: int
    amounts: Amounts
    events: tuple[LostRecord, ...]
    request: LostRequest | None
    again: Again | None
    customer_id: str = ""
    repeat: str = ""


@dataclass(frozen=True)
class Report:
    """What a switch of `kind` in `epoch` lost.

    `verdict` covers what is behind the mirror's position and before the switch: every loss is in `losses`; or there is
    none; or nothing can be proven of `unproven`, and `losses` are those of the other partitions. `searched` are the
    partitions (`topic/partition`) without a position of the mirror: there the last mirrored record was searched by its
    time. `continued`: by `topic/partition`, the first offset that may hold the new site's own events.
    """

    old_site: str
    new_site: str
    made_at: str
    losses: tuple[Loss, ...]
    torn_transactions: tuple[TornTransaction, ...]
    conversations: tuple[CutConversation, ...]
    parted: tuple[Parted, ...]
    continued: dict[str, int]
    kind: SwitchKind = "unplanned"
    epoch: int = 0
    verdict: Verdict = "listed"
    unproven: tuple[UnprovenPart, ...] = ()
    searched: tuple[str, ...] = ()

    @property
    def acknowledged(self) -> list[Loss]:
        """What clients received, oldest first."""
        return [loss for loss in self.losses if loss.acknowledged]


def report_losses(old: str | None, new: str, switch: SiteSwitch, show: Show = lambda _: None) -> Report:
    """What the log at `old` (host:port; None where its disk is gone) has and the one at `new` lacks.

    Both are those of `switch`, with its recorded ends. Raises NotCaughtUp or TimeoutError where a log cannot be read.
    """
    lost = unmirrored(old, new, switch, show)
    own = {partition: offset + 1 for partition, offset in ends_of(switch).items()}
    show("what the new site did since")
    again, parted = effects(new, lost, own)
    show("the old site's commands")
    requests = {} if old is None else _requests(old, lost)
    losses = [*_by_command(lost.events, requests, again), *_refusals(lost, requests, again)]
    whole = not lost.unproven
    return Report(
        switch.source,
        switch.target,
        format_time(now_micros()),
        tuple(sorted(losses, key=lambda loss: (loss.at, loss.version))),
        # both sides of the cut must be known
        torn_transactions(lost.events) if whole else (),
        cut_conversations(lost.events, _copied_stock(new, lost.events, own)) if whole else (),
        tuple(parted),
        {f"{topic}/{number}": offset for (topic, number), offset in own.items() if topic in EVENTS},
        switch.kind,
        switch.epoch,
        _verdict(lost),
        tuple(lost.unproven),
        tuple(f"{topic}/{number}" for topic, number in lost.searched),
    )


def _verdict(lost: Unmirrored) -> Verdict:
    if lost.unproven:
        return "unknown between these offsets"
    return "listed" if lost.events or lost.outcomes else NONE_LOST


def _by_command(
    events: Iterable[LostEvent], requests: Mapping[str, LostRequest], again: Mapping[str, Again]
) -> Iterable[Loss]:
    by_command: dict[str, list[LostEvent]] = defaultdict(list)
    for lost in events:
        by_command[lost.metadata.causation_id].append(lost)
    for command_id, group in by_command.items():
        first = group[0].metadata
        request = requests.get(command_id)
        yield Loss(
            command_id=command_id,
            command_type=_header(request, "ce_type"),
            subject=first.subject,
            service=SERVICE_OF[group[0].topic],
            outcome="accepted",
            code="",
            acknowledged=bool(first.request_hash),
            epoch=first.epoch,
            at=format_time(first.recorded_at),
            version=first.version - 1,
            amounts=_amounts(group[0].event),
            events=tuple(map(_record, group)),
            request=request,
            again=again.get(command_id),
            customer_id=getattr(group[0].event, "customer_id", None) or "",
        )


def _refusals(
    lost: Unmirrored, requests: Mapping[str, LostRequest], again: Mapping[str, Again]
) -> Iterable[Loss]:
    for refusal in lost.outcomes:
        outcome = refusal.outcome
        yield Loss(
            command_id=outcome.command_id,
            command_type=outcome.command_type,
            subject=outcome.subject,
            service=SERVICE_OF[refusal.topic],
            outcome=outcome.kind,
            code=outcome.code,
            acknowledged=bool(outcome.request_hash),
            epoch=lost.epoch,
            at=format_time(refusal.recorded_at),
            version=0,
            amounts={},
            events=(),
            request=requests.get(outcome.command_id),
            again=again.get(outcome.command_id),
        )


def _requests(old: str, lost: Unmirrored) -> dict[str, LostRequest]:
    """The acknowledged commands as they were first sent; those that retention removed are absent."""
    sent: dict[str, dict[str, int]] = defaultdict(dict)  # by topic and id: when its outcome was recorded
    for event in lost.events:
        if event.metadata.request_hash:
            topic = TOPICS[SERVICE_OF[event.topic]].commands
            sent[topic][event.metadata.causation_id] = event.metadata.recorded_at
    for refusal in lost.outcomes:
        if refusal.outcome.request_hash:
            topic = TOPICS[SERVICE_OF[refusal.topic]].commands
            sent[topic][refusal.outcome.command_id] = refusal.recorded_at
    requests: dict[str, LostRequest] = {}
    for topic, times in sent.items():
        first = min(times.values()) // 1000
        for before in SENT_BEFORE_MS:
            if missing := times.keys() - requests.keys():
                starts = offsets_at(old, topic, max(0, first - before))
                requests |= _sent(old, topic, starts, missing)
    return requests


def _sent(old: str, topic: str, starts: Mapping[int, int], ids: Collection[str]) -> dict[str, LostRequest]:
    requests: dict[str, LostRequest] = {}
    for record in read_to_end(old, topic, starts):
        for message in messages_in(record):  # none in a foreign record: no worker executed anything of it
            command_id = message.metadata.id
            if command_id in ids and command_id not in requests:
                key, value = (message.key or b"").decode(), message.value or b""
                headers = [(name, content or b"") for name, content in own_headers(record, message)]
                requests[command_id] = LostRequest(topic, key, value, tuple(headers))
    return requests


def _record(lost: LostEvent) -> LostRecord:
    meta = lost.metadata
    position = (lost.topic, lost.partition, lost.offset)
    return LostRecord(meta.id, meta.type, *position, meta.version, format_time(meta.recorded_at))


def _amounts(event: Any) -> Amounts:
    """The money (micros), units and currency of an event."""
    amounts: Amounts = {name: getattr(event, name) for name in FIGURES if hasattr(event, name)}
    if lines := getattr(event, "lines", ()):
        amounts.setdefault("units", sum(line.quantity for line in lines))
    if currency := getattr(event, "currency", ""):
        amounts["currency"] = currency
    return amounts


def _header(request: LostRequest | None, name: str) -> str:
    """Empty where retention has removed the command, or it has no such header."""
    return dict(request.headers).get(name, b"").decode() if request is not None else ""


@dataclass(frozen=True)
class TornTransaction:
    """A worker's transaction: `crossed` of its `count` events are at the new site."""

    id: str
    topic: str
    count: int
    crossed: int


@dataclass(frozen=True)
class CutConversation:
    """An order whose log and stock were mirrored to different points.

    `how`: `order lost` (its stock is reserved, and is released), `stock behind` (the order sends again),
    `order behind` (stock replies again) or `both behind`.
    """

    order_id: str
    how: str
    order_events: tuple[str, ...]
    stock_events: tuple[str, ...]


def torn_transactions(lost: Iterable[LostEvent]) -> tuple[TornTransaction, ...]:
    """The transactions of which some events are lost, and not all."""
    missing: dict[tuple[str, str, int], int] = defaultdict(int)
    for event in lost:
        if (transaction := _transaction(event.metadata)) is not None:
            missing[transaction[0], event.topic, transaction[1]] += 1
    return tuple(
        TornTransaction(transaction, topic, count, count - gone)
        for (transaction, topic, count), gone in missing.items()
        if gone < count
    )


def torn_at(bootstrap: str) -> tuple[TornTransaction, ...]:
    """The partially mirrored transactions at the end of a mirrored log, found without the old site.

    Partitions may end at different times: events older than the earliest end are complete in all.
    """
    torn: list[TornTransaction] = []
    for topic in EVENTS:
        since = horizon(newest_times(bootstrap, topic), LONGEST_MS, MARGIN_MS)
        seen: dict[tuple[str, int], int] = defaultdict(int)
        begun_before: set[str] = set()
        starts = offsets_at(bootstrap, topic, since)
        for record in read_to_end(bootstrap, topic, starts):
            metadata = event_in_any_epoch(record, len(starts))
            identity = None if metadata is None else _transaction(metadata)
            if identity is None:
                continue
            transaction, count = identity
            seen[transaction, count] += 1
            if since > 0 and record.timestamp()[1] < since + MARGIN_MS / 2:
                begun_before.add(transaction)
        torn += [
            TornTransaction(transaction, topic, count, there)
            for (transaction, count), there in seen.items()
            if there < count and transaction not in begun_before
        ]
    return tuple(torn)


def _transaction(metadata: Metadata) -> tuple[str, int] | None:
    """A transaction's id, and how many events it has; None where a forged event names none."""
    name, _, rest = metadata.transaction.partition("/")
    count = rest.rpartition("/")[2]
    return (name, int(count)) if count.isdecimal() else None


def cut_conversations(
    lost: Iterable[LostEvent], copied_stock: Iterable[LostEvent]
) -> tuple[CutConversation, ...]:
    """`copied_stock` are mirrored stock events near the cut."""
    orders: dict[str, list[LostEvent]] = defaultdict(list)
    stock: dict[str, list[LostEvent]] = defaultdict(list)
    for event in lost:
        (orders if event.topic == EVENTS[0] else stock)[event.order_id].append(event)
    crossed: dict[str, list[LostEvent]] = defaultdict(list)
    for event in copied_stock:
        crossed[event.order_id].append(event)
    conversations = []
    for order_id in sorted((orders.keys() | stock.keys()) - {""}):
        how = _how(orders[order_id], stock[order_id], crossed[order_id])
        if how:
            order_types = tuple(event.metadata.type for event in orders[order_id])
            stock_types = tuple(f"{own.metadata.type} {own.metadata.subject}" for own in stock[order_id])
            conversations.append(CutConversation(order_id, how, order_types, stock_types))
    return tuple(conversations)


def _how(order: list[LostEvent], stock: list[LostEvent], crossed: list[LostEvent]) -> str:
    """Empty where the order is lost together with its reservations."""
    if any(isinstance(event.event, OrderPlaced) for event in order):
        return "order lost" if crossed else ""
    if order and stock:
        return "both behind"
    return "order behind" if order else "stock behind"


def _copied_stock(new: str, lost: Iterable[LostEvent], own: Mapping[Partition, int]) -> Iterator[LostEvent]:
    """The mirrored stock events since shortly before the first order that was lost; none where no order was."""
    topic = TOPICS["inventory"].events
    placed = [event.metadata.recorded_at // 1000 for event in lost if isinstance(event.event, OrderPlaced)]
    if not placed:
        return
    starts = offsets_at(new, topic, max(0, min(placed) - CLOCK_MS))
    ends = {number: own.get((topic, number), 0) for number in starts}
    for record in read_to_end(new, topic, starts, until=lambda at: at.offset() >= ends[at.partition()]):
        if (metadata := event_in_any_epoch(record, len(starts))) is not None:
            yield lost_event(record, metadata)
