"""What a failover cuts through: transactions of which a part crossed, and conversations between logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from contracts.order.events import OrderPlaced
from infra.dr.lost_log import EVENTS, LostEvent
from infra.log.event_log import event_in_any_epoch
from services.kernel.log.reader import newest_times, offsets_at, read_to_end
from services.kernel.record.envelope import Metadata
from services.kernel.worker.takeover import horizon

# A mirror that follows is nowhere near that far behind in one partition and not in another.
LONGEST_MS = 3_600_000
MARGIN_MS = 10_000  # a transaction's events are recorded at one time, and written within this


@dataclass(frozen=True)
class TornTransaction:
    """A transaction of a worker: `crossed` of its `count` events are at the new site."""

    id: str
    topic: str
    count: int
    crossed: int


@dataclass(frozen=True)
class CutConversation:
    """An order whose log and stock crossed to different points.

    `how`: `order lost` (stock is held for it, and is released), `stock behind` (the order asks again),
    `order behind` (stock answers again) or `both behind`.
    """

    order_id: str
    how: str
    order_events: tuple[str, ...]
    stock_events: tuple[str, ...]


def torn_transactions(lost: Iterable[LostEvent]) -> tuple[TornTransaction, ...]:
    """Those of which some events are lost, and not all."""
    missing: dict[tuple[str, str, int], int] = defaultdict(int)
    for event in lost:
        if (found := _transaction(event.metadata)) is not None:
            missing[found[0], event.topic, found[1]] += 1
    return tuple(
        TornTransaction(transaction, topic, count, count - gone)
        for (transaction, topic, count), gone in missing.items()
        if gone < count
    )


def torn_at(bootstrap: str) -> tuple[TornTransaction, ...]:
    """The torn transactions that the end of a mirrored log shows by itself, the old site being gone.

    A partition may be cut earlier than another: what is older than the last event of all of them is in all.
    """
    torn: list[TornTransaction] = []
    for topic in EVENTS:
        since = horizon(newest_times(bootstrap, topic), LONGEST_MS, MARGIN_MS)
        seen: dict[tuple[str, int], int] = defaultdict(int)
        begun_before: set[str] = set()
        starts = offsets_at(bootstrap, topic, since)
        for record in read_to_end(bootstrap, topic, starts):
            metadata = event_in_any_epoch(record, len(starts))
            found = None if metadata is None else _transaction(metadata)
            if found is None:
                continue
            transaction, count = found
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


def cut_conversations(lost: Iterable[LostEvent], held: Iterable[LostEvent]) -> tuple[CutConversation, ...]:
    """`held` are stock events that crossed, near the cut."""
    orders: dict[str, list[LostEvent]] = defaultdict(list)
    stock: dict[str, list[LostEvent]] = defaultdict(list)
    for event in lost:
        (orders if event.topic == EVENTS[0] else stock)[event.order_id].append(event)
    crossed: dict[str, list[LostEvent]] = defaultdict(list)
    for event in held:
        crossed[event.order_id].append(event)
    found = []
    for order_id in sorted((orders.keys() | stock.keys()) - {""}):
        how = _how(orders[order_id], stock[order_id], crossed[order_id])
        if how:
            order_types = tuple(event.metadata.type for event in orders[order_id])
            stock_types = tuple(
                f"{event.metadata.type} {event.metadata.subject}" for event in stock[order_id]
            )
            found.append(CutConversation(order_id, how, order_types, stock_types))
    return tuple(found)


def _how(order: list[LostEvent], stock: list[LostEvent], crossed: list[LostEvent]) -> str:
    """Empty where the order is lost with everything that was held for it."""
    if any(isinstance(event.event, OrderPlaced) for event in order):
        return "order lost" if crossed else ""
    if order and stock:
        return "both behind"
    return "order behind" if order else "stock behind"
