"""Stock, money and conversations, recomputed from the events alone, with none of the domain's code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from contracts.inventory import events as stock
from contracts.order import events as order
from infra.lab.checker.evidence import Recorded

Found = Iterator[tuple[str, str]]
ENDED = (order.OrderRejected, order.OrderCancelled, order.OrderExpired)


@dataclass
class Ledger:
    """One SKU; `held` and `ended` per order."""

    on_hand: int = 0
    held: dict[str, int] = field(default_factory=dict)
    ended: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def stock_adds_up(events: list[Recorded]) -> Found:
    """I7: at every prefix nothing is below zero, and only what is held is released or issued."""
    yield from _ledgers(events)[1]


def _ledgers(events: list[Recorded]) -> tuple[dict[str, Ledger], list[tuple[str, str]]]:
    ledgers: dict[str, Ledger] = defaultdict(Ledger)
    wrong: list[tuple[str, str]] = []
    for recorded in events:
        if recorded.topic != "inventory.events":
            continue
        of, event = ledgers[recorded.key], recorded.event
        match event:
            case stock.StockReceived() | stock.StockAdjusted() | stock.StockReturned():
                of.on_hand += event.quantity
            case stock.StockReserved():
                if event.order_id in of.held:
                    wrong.append((recorded.key, f"{event.order_id} holds a reservation twice"))
                of.held[event.order_id] = event.quantity
            case stock.StockReleased() | stock.StockIssued():
                held = of.held.pop(event.order_id, 0)
                if event.quantity != held:
                    wrong.append((recorded.key, f"{event.order_id} held {held}, {event.quantity} ended"))
                if isinstance(event, stock.StockIssued):
                    of.on_hand -= event.quantity
                if not (isinstance(event, stock.StockReleased) and event.order_lost):
                    of.ended[event.order_id].append(type(event).__name__)
        if of.on_hand < 0 or of.on_hand < sum(of.held.values()):
            at = f"version {recorded.metadata.version}"
            wrong.append((recorded.key, f"on hand {of.on_hand}, held {sum(of.held.values())} at {at}"))
    return ledgers, wrong


def money_is_conserved(events: list[Recorded]) -> Found:
    """I8: gross = lines + charges, said the same in every event; refunds never exceed the lines."""
    gross: dict[str, int] = {}
    lines: dict[str, int] = {}
    refunded: dict[str, int] = defaultdict(int)
    for recorded in events:
        key, event = recorded.key, recorded.event
        match event:
            case order.OrderPlaced():
                lines[key] = sum(line.quantity * line.unit_price for line in event.lines)
                gross[key] = lines[key] + sum(charge.amount for charge in event.charges)
                if event.gross != gross[key]:
                    yield key, f"gross {event.gross}, lines and charges say {gross[key]}"
            case order.OrderConfirmed() | order.OrderCancelled():
                if event.gross != gross.get(key):
                    yield key, f"{type(event).__name__} says gross {event.gross}, it was {gross.get(key)}"
            case order.OrderReturned():
                refunded[key] += event.refund
                if event.refund != sum(line.refund for line in event.lines) or refunded[key] > lines.get(
                    key, 0
                ):
                    yield key, f"refunds of {refunded[key]} do not fit lines of {lines.get(key, 0)}"


def conversations_end(events: list[Recorded], at_rest: bool) -> Found:
    """I9: a hold ends at most once and, at rest, exactly once for an ended or shipped order; no order
    stays placed."""
    ledgers, _ = _ledgers(events)
    last: dict[str, object] = {}
    for recorded in events:
        if recorded.topic == "order.events" and not isinstance(recorded.event, order.MovementsRecorded):
            last[recorded.key] = recorded.event
    for sku, ledger in ledgers.items():
        for order_id, ends in ledger.ended.items():
            if len(ends) > 1:
                yield sku, f"{order_id}'s hold ended {len(ends)} times: {ends}"
    if not at_rest:
        return
    for order_id, event in last.items():
        if isinstance(event, (order.OrderPlaced, order.ReservationsRecorded)):
            yield order_id, f"still open at rest: {type(event).__name__}"
    for sku, ledger in ledgers.items():
        for order_id in ledger.held:
            if not isinstance(last.get(order_id), order.OrderConfirmed):
                yield (
                    sku,
                    f"{order_id} still holds {ledger.held[order_id]}: {type(last.get(order_id)).__name__}",
                )
