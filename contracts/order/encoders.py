"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contracts.avro import LENGTHS, array, int32, join, long
from contracts.order import commands, events


def place_order(record: commands.PlaceOrder) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        b"\0" if record.customer_id is None else b"\2" + LENGTHS[len(text := record.customer_id.encode())] + text,
        LENGTHS[len(text := record.country.encode())] + text,
        LENGTHS[len(text := record.currency.encode())] + text,
        long(record.occurred_at),
        b"\0" if record.settle_by is None else b"\2" + long(record.settle_by),
        array([line(item) for item in record.lines]) if record.lines else b"\0",
        array([charge(item) for item in record.charges]) if record.charges else b"\0",
    ))


def cancel_order(record: commands.CancelOrder) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
    ))


def ship_order(record: commands.ShipOrder) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        b"\0" if record.carrier is None else b"\2" + LENGTHS[len(text := record.carrier.encode())] + text,
        b"\0" if record.reference is None else b"\2" + LENGTHS[len(text := record.reference.encode())] + text,
        long(record.occurred_at),
    ))


def returned_line(record: commands.ReturnedLine) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
    ))


def return_lines(record: commands.ReturnLines) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        array([returned_line(item) for item in record.lines]) if record.lines else b"\0",
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
    ))


def expire_order(record: commands.ExpireOrder) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
    ))


def justify_reservation(record: commands.JustifyReservation) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        LENGTHS[len(text := record.sku.encode())] + text,
        long(record.occurred_at),
    ))


def record_reservations(record: commands.RecordReservations) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        array([LENGTHS[len(text := item.encode())] + text for item in record.reserved]) if record.reserved else b"\0",
        array([LENGTHS[len(text := item.encode())] + text for item in record.short]) if record.short else b"\0",
    ))


def record_movements(record: commands.RecordMovements) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        array([movement(item) for item in record.movements]) if record.movements else b"\0",
    ))


def line(record: events.Line) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        long(record.unit_price),
    ))


def charge(record: events.Charge) -> bytes:
    return join((
        LENGTHS[len(text := record.code.encode())] + text,
        long(record.amount),
    ))


def order_placed(record: events.OrderPlaced) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        b"\0" if record.customer_id is None else b"\2" + LENGTHS[len(text := record.customer_id.encode())] + text,
        LENGTHS[len(text := record.country.encode())] + text,
        LENGTHS[len(text := record.currency.encode())] + text,
        long(record.occurred_at),
        array([line(item) for item in record.lines]) if record.lines else b"\0",
        array([charge(item) for item in record.charges]) if record.charges else b"\0",
        long(record.gross),
        b"\0" if record.settle_by is None else b"\2" + long(record.settle_by),
    ))


def reservations_recorded(record: events.ReservationsRecorded) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.reserved]) if record.reserved else b"\0",
    ))


def order_confirmed(record: events.OrderConfirmed) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.reserved]) if record.reserved else b"\0",
        LENGTHS[len(text := record.country.encode())] + text,
        LENGTHS[len(text := record.currency.encode())] + text,
        int32(record.units),
        long(record.gross),
    ))


def order_rejected(record: events.OrderRejected) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.short]) if record.short else b"\0",
        array([LENGTHS[len(text := item.encode())] + text for item in record.release]) if record.release else b"\0",
    ))


def order_cancelled(record: events.OrderCancelled) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        LENGTHS[len(text := record.reason.encode())] + text,
        b"\1" if record.confirmed else b"\0",
        long(record.placed_at),
        LENGTHS[len(text := record.country.encode())] + text,
        LENGTHS[len(text := record.currency.encode())] + text,
        int32(record.units),
        long(record.gross),
        array([LENGTHS[len(text := item.encode())] + text for item in record.release]) if record.release else b"\0",
    ))


def order_expired(record: events.OrderExpired) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.release]) if record.release else b"\0",
    ))


def order_shipped(record: events.OrderShipped) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        b"\0" if record.carrier is None else b"\2" + LENGTHS[len(text := record.carrier.encode())] + text,
        b"\0" if record.reference is None else b"\2" + LENGTHS[len(text := record.reference.encode())] + text,
        array([LENGTHS[len(text := item.encode())] + text for item in record.issue]) if record.issue else b"\0",
    ))


def refunded_line(record: events.RefundedLine) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        long(record.refund),
    ))


def order_returned(record: events.OrderReturned) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        int32(record.return_number),
        LENGTHS[len(text := record.reason.encode())] + text,
        LENGTHS[len(text := record.country.encode())] + text,
        LENGTHS[len(text := record.currency.encode())] + text,
        array([refunded_line(item) for item in record.lines]) if record.lines else b"\0",
        int32(record.units),
        long(record.refund),
        b"\1" if record.complete else b"\0",
    ))


def movement(record: events.Movement) -> bytes:
    return join((
        LENGTHS[len(text := record.step.encode())] + text,
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.return_number),
        b"\1" if record.accepted else b"\0",
        LENGTHS[len(text := record.code.encode())] + text,
    ))


def movements_recorded(record: events.MovementsRecorded) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([movement(item) for item in record.movements]) if record.movements else b"\0",
    ))


ENCODERS: dict[type, Callable[[Any], bytes]] = {
    commands.PlaceOrder: place_order,
    commands.CancelOrder: cancel_order,
    commands.ShipOrder: ship_order,
    commands.ReturnLines: return_lines,
    commands.ExpireOrder: expire_order,
    commands.JustifyReservation: justify_reservation,
    commands.RecordReservations: record_reservations,
    commands.RecordMovements: record_movements,
    events.OrderPlaced: order_placed,
    events.ReservationsRecorded: reservations_recorded,
    events.OrderConfirmed: order_confirmed,
    events.OrderRejected: order_rejected,
    events.OrderCancelled: order_cancelled,
    events.OrderExpired: order_expired,
    events.OrderShipped: order_shipped,
    events.OrderReturned: order_returned,
    events.MovementsRecorded: movements_recorded,
}
