"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contracts.avro import LENGTHS, array, binary, int32, join, long, symbols
from contracts.inventory import commands as inventory_commands
from contracts.inventory import events as inventory_events
from contracts.kernel import records as kernel_records
from contracts.order import commands as order_commands
from contracts.order import events as order_events

OUTCOME_KIND = symbols("accepted", "refused", "conflict", "failed")
ROLE = symbols("active", "passive")
HOLD_KIND = symbols("quiesced", "unproven", "takeover")
INPUT_PHASE = symbols("inbox", "closed")
RECORD_VERDICT = symbols("foreign", "genuine", "suspect")
SWITCH_KIND = symbols("planned", "unplanned")
SWITCH_STEP = symbols("begun", "stopped", "promoted", "aborted", "reported", "reconciled", "rebuilt", "returned")
ACT_OUTCOME = symbols("done", "failed")


def receive_stock(record: inventory_commands.ReceiveStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reference.encode())] + text,
        long(record.occurred_at),
    ))


def adjust_stock(record: inventory_commands.AdjustStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
    ))


def reserve_stock(record: inventory_commands.ReserveStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
    ))


def release_stock(record: inventory_commands.ReleaseStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        b"\1" if record.order_lost else b"\0",
    ))


def issue_stock(record: inventory_commands.IssueStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
    ))


def return_stock(record: inventory_commands.ReturnStock) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.return_number),
        int32(record.quantity),
        long(record.occurred_at),
    ))


def stock_received(record: inventory_events.StockReceived) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reference.encode())] + text,
        long(record.occurred_at),
    ))


def stock_adjusted(record: inventory_events.StockAdjusted) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
    ))


def stock_reserved(record: inventory_events.StockReserved) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
    ))


def stock_released(record: inventory_events.StockReleased) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
        b"\1" if record.order_lost else b"\0",
    ))


def stock_issued(record: inventory_events.StockIssued) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.quantity),
        long(record.occurred_at),
    ))


def stock_returned(record: inventory_events.StockReturned) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        LENGTHS[len(text := record.order_id.encode())] + text,
        int32(record.return_number),
        int32(record.quantity),
        long(record.occurred_at),
    ))


def epoch_opened(record: kernel_records.EpochOpened) -> bytes:
    return join((
        long(record.epoch),
        LENGTHS[len(text := record.site.encode())] + text,
        long(record.opened_at),
    ))


def outcome(record: kernel_records.Outcome) -> bytes:
    return join((
        LENGTHS[len(text := record.command_id.encode())] + text,
        LENGTHS[len(text := record.command_type.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        LENGTHS[len(text := record.tag.encode())] + text,
        OUTCOME_KIND[record.kind],
        long(record.version),
        array([LENGTHS[len(text := item.encode())] + text for item in record.event_ids]) if record.event_ids else b"\0",
        LENGTHS[len(text := record.status.encode())] + text,
        LENGTHS[len(text := record.code.encode())] + text,
        LENGTHS[len(text := record.reason.encode())] + text,
        LENGTHS[len(text := record.request_hash.encode())] + text,
        b"\1" if record.replayed else b"\0",
        long(record.epoch),
    ))


def outcome_batch(record: kernel_records.OutcomeBatch) -> bytes:
    return join((
        array([outcome(item) for item in record.outcomes]) if record.outcomes else b"\0",
        long(record.epoch),
    ))


def inbox_message(record: kernel_records.InboxMessage) -> bytes:
    return join((
        LENGTHS[len(text := record.id.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        LENGTHS[len(text := record.tag.encode())] + text,
        binary(record.value),
    ))


def inbox_group(record: kernel_records.InboxGroup) -> bytes:
    return join((
        LENGTHS[len(text := record.type.encode())] + text,
        LENGTHS[len(text := record.correlation_id.encode())] + text,
        LENGTHS[len(text := record.causation_id.encode())] + text,
        LENGTHS[len(text := record.traceparent.encode())] + text,
        LENGTHS[len(text := record.reply_topic.encode())] + text,
        LENGTHS[len(text := record.reply_key.encode())] + text,
        array([inbox_message(item) for item in record.messages]) if record.messages else b"\0",
    ))


def inbox_batch(record: kernel_records.InboxBatch) -> bytes:
    return array([inbox_group(item) for item in record.groups]) if record.groups else b"\0"


def answer(record: kernel_records.Answer) -> bytes:
    return join((
        outcome(record.outcome),
        long(record.recorded_at),
    ))


def remembered(record: kernel_records.Remembered) -> bytes:
    return join((
        outcome(record.outcome),
        long(record.recorded_at),
    ))


def snapshot(record: kernel_records.Snapshot) -> bytes:
    return join((
        LENGTHS[len(text := record.format.encode())] + text,
        long(record.version),
        long(record.recorded_at),
        binary(record.state),
        array([remembered(item) for item in record.answers]) if record.answers else b"\0",
        long(record.read_to),
        long(record.unread),
    ))


def watermark(record: kernel_records.Watermark) -> bytes:
    return join((
        long(record.events),
        long(record.answers),
        long(record.epoch),
        long(record.judged),
    ))


def header(record: kernel_records.Header) -> bytes:
    return join((
        LENGTHS[len(text := record.name.encode())] + text,
        binary(record.value),
    ))


def parked_command(record: kernel_records.ParkedCommand) -> bytes:
    return join((
        LENGTHS[len(text := record.topic.encode())] + text,
        int32(record.partition),
        long(record.offset),
        LENGTHS[len(text := record.reason.encode())] + text,
        binary(record.key),
        binary(record.value),
        array([header(item) for item in record.headers]) if record.headers else b"\0",
        long(record.recorded_at),
    ))


def site_role(record: kernel_records.SiteRole) -> bytes:
    return join((
        LENGTHS[len(text := record.site.encode())] + text,
        ROLE[record.role],
        long(record.epoch),
    ))


def site_hold(record: kernel_records.SiteHold) -> bytes:
    return join((
        HOLD_KIND[record.kind],
        long(record.epoch),
        long(record.since),
    ))


def storage_block(record: kernel_records.StorageBlock) -> bytes:
    return join((
        LENGTHS[len(text := record.folder.encode())] + text,
        long(record.free_bytes),
        long(record.since),
    ))


def slot_layout(record: kernel_records.SlotLayout) -> bytes:
    return join((
        LENGTHS[len(text := record.service.encode())] + text,
        int32(record.number),
        int32(record.slots),
    ))


def command_inputs(record: kernel_records.CommandInputs) -> bytes:
    return join((
        INPUT_PHASE[record.phase],
        long(record.recorded_at),
    ))


def site_alone(record: kernel_records.SiteAlone) -> bytes:
    return join((
        long(record.epoch),
        long(record.since),
    ))


def site_lease(record: kernel_records.SiteLease) -> bytes:
    return join((
        long(record.seconds),
        long(record.since),
    ))


def canary(record: kernel_records.Canary) -> bytes:
    return join((
        LENGTHS[len(text := record.site.encode())] + text,
        long(record.epoch),
        long(record.sent_at),
    ))


def loss_reissued(record: kernel_records.LossReissued) -> bytes:
    return join((
        LENGTHS[len(text := record.command_id.encode())] + text,
        LENGTHS[len(text := record.command_type.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        long(record.lost_epoch),
        LENGTHS[len(text := record.outcome.encode())] + text,
        LENGTHS[len(text := record.code.encode())] + text,
        long(record.decided_at),
    ))


def loss_written_off(record: kernel_records.LossWrittenOff) -> bytes:
    return join((
        LENGTHS[len(text := record.command_id.encode())] + text,
        LENGTHS[len(text := record.command_type.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        long(record.lost_epoch),
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.decided_at),
    ))


def record_judged(record: kernel_records.RecordJudged) -> bytes:
    return join((
        LENGTHS[len(text := record.stream.encode())] + text,
        long(record.version),
        LENGTHS[len(text := record.event_id.encode())] + text,
        LENGTHS[len(text := record.digest.encode())] + text,
        RECORD_VERDICT[record.verdict],
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.judged_at),
    ))


def epochs_recorded(record: kernel_records.EpochsRecorded) -> bytes:
    return join((
        LENGTHS[len(text := record.topic.encode())] + text,
        array([long(item) for item in record.epochs]) if record.epochs else b"\0",
        long(record.recorded_at),
    ))


def partition_end(record: kernel_records.PartitionEnd) -> bytes:
    return join((
        LENGTHS[len(text := record.topic.encode())] + text,
        int32(record.partition),
        long(record.offset),
    ))


def site_switch(record: kernel_records.SiteSwitch) -> bytes:
    return join((
        long(record.epoch),
        SWITCH_KIND[record.kind],
        LENGTHS[len(text := record.source.encode())] + text,
        LENGTHS[len(text := record.target.encode())] + text,
        SWITCH_STEP[record.step],
        array([partition_end(item) for item in record.ends]) if record.ends else b"\0",
        long(record.recorded_at),
    ))


def loss_report(record: kernel_records.LossReport) -> bytes:
    return join((
        long(record.epoch),
        int32(record.part),
        int32(record.parts),
        binary(record.content),
        long(record.recorded_at),
    ))


def operator_acted(record: kernel_records.OperatorActed) -> bytes:
    return join((
        LENGTHS[len(text := record.who.encode())] + text,
        LENGTHS[len(text := record.act.encode())] + text,
        LENGTHS[len(text := record.subject.encode())] + text,
        LENGTHS[len(text := record.why.encode())] + text,
        ACT_OUTCOME[record.outcome],
        long(record.acted_at),
    ))


def place_order(record: order_commands.PlaceOrder) -> bytes:
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


def cancel_order(record: order_commands.CancelOrder) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
        b"\0" if record.customer_id is None else b"\2" + LENGTHS[len(text := record.customer_id.encode())] + text,
    ))


def ship_order(record: order_commands.ShipOrder) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        b"\0" if record.carrier is None else b"\2" + LENGTHS[len(text := record.carrier.encode())] + text,
        b"\0" if record.reference is None else b"\2" + LENGTHS[len(text := record.reference.encode())] + text,
        long(record.occurred_at),
    ))


def returned_line(record: order_commands.ReturnedLine) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
    ))


def return_lines(record: order_commands.ReturnLines) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        array([returned_line(item) for item in record.lines]) if record.lines else b"\0",
        LENGTHS[len(text := record.reason.encode())] + text,
        long(record.occurred_at),
    ))


def expire_order(record: order_commands.ExpireOrder) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
    ))


def justify_reservation(record: order_commands.JustifyReservation) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        LENGTHS[len(text := record.sku.encode())] + text,
        long(record.occurred_at),
    ))


def record_reservations(record: order_commands.RecordReservations) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        array([LENGTHS[len(text := item.encode())] + text for item in record.reserved]) if record.reserved else b"\0",
        array([LENGTHS[len(text := item.encode())] + text for item in record.short]) if record.short else b"\0",
    ))


def record_movements(record: order_commands.RecordMovements) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        array([movement(item) for item in record.movements]) if record.movements else b"\0",
    ))


def line(record: order_events.Line) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        long(record.unit_price),
    ))


def charge(record: order_events.Charge) -> bytes:
    return join((
        LENGTHS[len(text := record.code.encode())] + text,
        long(record.amount),
    ))


def order_placed(record: order_events.OrderPlaced) -> bytes:
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


def reservations_recorded(record: order_events.ReservationsRecorded) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.reserved]) if record.reserved else b"\0",
    ))


def order_confirmed(record: order_events.OrderConfirmed) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.reserved]) if record.reserved else b"\0",
        LENGTHS[len(text := record.country.encode())] + text,
        LENGTHS[len(text := record.currency.encode())] + text,
        int32(record.units),
        long(record.gross),
    ))


def order_rejected(record: order_events.OrderRejected) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.short]) if record.short else b"\0",
        array([LENGTHS[len(text := item.encode())] + text for item in record.release]) if record.release else b"\0",
    ))


def order_cancelled(record: order_events.OrderCancelled) -> bytes:
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


def order_expired(record: order_events.OrderExpired) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([LENGTHS[len(text := item.encode())] + text for item in record.release]) if record.release else b"\0",
    ))


def order_shipped(record: order_events.OrderShipped) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        b"\0" if record.carrier is None else b"\2" + LENGTHS[len(text := record.carrier.encode())] + text,
        b"\0" if record.reference is None else b"\2" + LENGTHS[len(text := record.reference.encode())] + text,
        array([LENGTHS[len(text := item.encode())] + text for item in record.issue]) if record.issue else b"\0",
    ))


def refunded_line(record: order_events.RefundedLine) -> bytes:
    return join((
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.quantity),
        long(record.refund),
    ))


def order_returned(record: order_events.OrderReturned) -> bytes:
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


def movement(record: order_events.Movement) -> bytes:
    return join((
        LENGTHS[len(text := record.step.encode())] + text,
        LENGTHS[len(text := record.sku.encode())] + text,
        int32(record.return_number),
        b"\1" if record.accepted else b"\0",
        LENGTHS[len(text := record.code.encode())] + text,
    ))


def movements_recorded(record: order_events.MovementsRecorded) -> bytes:
    return join((
        LENGTHS[len(text := record.order_id.encode())] + text,
        long(record.occurred_at),
        array([movement(item) for item in record.movements]) if record.movements else b"\0",
    ))


ENCODERS: dict[Any, Callable[[Any], bytes]] = {
    inventory_commands.ReceiveStock: receive_stock,
    inventory_commands.AdjustStock: adjust_stock,
    inventory_commands.ReserveStock: reserve_stock,
    inventory_commands.ReleaseStock: release_stock,
    inventory_commands.IssueStock: issue_stock,
    inventory_commands.ReturnStock: return_stock,
    inventory_events.StockReceived: stock_received,
    inventory_events.StockAdjusted: stock_adjusted,
    inventory_events.StockReserved: stock_reserved,
    inventory_events.StockReleased: stock_released,
    inventory_events.StockIssued: stock_issued,
    inventory_events.StockReturned: stock_returned,
    kernel_records.EpochOpened: epoch_opened,
    kernel_records.OutcomeBatch: outcome_batch,
    kernel_records.InboxBatch: inbox_batch,
    kernel_records.Answer: answer,
    kernel_records.Snapshot: snapshot,
    kernel_records.Watermark: watermark,
    kernel_records.ParkedCommand: parked_command,
    kernel_records.SiteRole: site_role,
    kernel_records.SiteHold: site_hold,
    kernel_records.StorageBlock: storage_block,
    kernel_records.SlotLayout: slot_layout,
    kernel_records.CommandInputs: command_inputs,
    kernel_records.SiteAlone: site_alone,
    kernel_records.SiteLease: site_lease,
    kernel_records.Canary: canary,
    kernel_records.LossReissued: loss_reissued,
    kernel_records.LossWrittenOff: loss_written_off,
    kernel_records.RecordJudged: record_judged,
    kernel_records.EpochsRecorded: epochs_recorded,
    kernel_records.SiteSwitch: site_switch,
    kernel_records.LossReport: loss_report,
    kernel_records.OperatorActed: operator_acted,
    order_commands.PlaceOrder: place_order,
    order_commands.CancelOrder: cancel_order,
    order_commands.ShipOrder: ship_order,
    order_commands.ReturnLines: return_lines,
    order_commands.ExpireOrder: expire_order,
    order_commands.JustifyReservation: justify_reservation,
    order_commands.RecordReservations: record_reservations,
    order_commands.RecordMovements: record_movements,
    order_events.OrderPlaced: order_placed,
    order_events.ReservationsRecorded: reservations_recorded,
    order_events.OrderConfirmed: order_confirmed,
    order_events.OrderRejected: order_rejected,
    order_events.OrderCancelled: order_cancelled,
    order_events.OrderExpired: order_expired,
    order_events.OrderShipped: order_shipped,
    order_events.OrderReturned: order_returned,
    order_events.MovementsRecorded: movements_recorded,
}

RECORDS: dict[str, type] = {record.TYPE: record for record in ENCODERS}  # by full name
