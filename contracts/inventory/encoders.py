"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contracts.avro import LENGTHS, int32, join, long
from contracts.inventory import commands, events


def receive_stock(record: commands.ReceiveStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reference.encode())] + text,
        long(record.occurred_at),
    ))


def adjust_stock(record: commands.AdjustStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
    ))


def reserve_stock(record: commands.ReserveStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
    ))


def release_stock(record: commands.ReleaseStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        b"\1" if record.order_lost else b"\0",
    ))


def issue_stock(record: commands.IssueStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
    ))


def return_stock(record: commands.ReturnStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.return_number),
        int32(record.quantity),
        long(record.occurred_at),
    ))


def stock_received(record: events.StockReceived) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reference.encode())] + text,
        long(record.occurred_at),
    ))


def stock_adjusted(record: events.StockAdjusted) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
    ))


def stock_reserved(record: events.StockReserved) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
    ))


def stock_released(record: events.StockReleased) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
        b"\1" if record.order_lost else b"\0",
    ))


def stock_issued(record: events.StockIssued) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
    ))


def stock_returned(record: events.StockReturned) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.return_number),
        int32(record.quantity),
        long(record.occurred_at),
    ))


ENCODERS: dict[type, Callable[[Any], bytes]] = {
    commands.ReceiveStock: receive_stock,
    commands.AdjustStock: adjust_stock,
    commands.ReserveStock: reserve_stock,
    commands.ReleaseStock: release_stock,
    commands.IssueStock: issue_stock,
    commands.ReturnStock: return_stock,
    events.StockReceived: stock_received,
    events.StockAdjusted: stock_adjusted,
    events.StockReserved: stock_reserved,
    events.StockReleased: stock_released,
    events.StockIssued: stock_issued,
    events.StockReturned: stock_returned,
}
