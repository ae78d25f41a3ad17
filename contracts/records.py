"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contracts.inventory import commands as inventory_commands
from contracts.inventory import encoders as inventory_encoders
from contracts.inventory import events as inventory_events
from contracts.kernel import encoders as kernel_encoders
from contracts.kernel import records as kernel_records
from contracts.order import commands as order_commands
from contracts.order import encoders as order_encoders
from contracts.order import events as order_events

RECORDS: dict[str, type] = {
    record.TYPE: record
    for record in (
        inventory_commands.ReceiveStock,
        inventory_commands.AdjustStock,
        inventory_commands.ReserveStock,
        inventory_commands.ReleaseStock,
        inventory_commands.IssueStock,
        inventory_commands.ReturnStock,
        inventory_events.StockReceived,
        inventory_events.StockAdjusted,
        inventory_events.StockReserved,
        inventory_events.StockReleased,
        inventory_events.StockIssued,
        inventory_events.StockReturned,
        kernel_records.EpochOpened,
        kernel_records.OutcomeBatch,
        kernel_records.Answer,
        kernel_records.Snapshot,
        kernel_records.Watermark,
        kernel_records.ParkedCommand,
        kernel_records.SiteRole,
        kernel_records.SiteHold,
        kernel_records.StorageBlock,
        kernel_records.SlotLayout,
        kernel_records.CommandInputs,
        kernel_records.Canary,
        kernel_records.LossReissued,
        kernel_records.LossWrittenOff,
        kernel_records.RecordJudged,
        kernel_records.EpochsRecorded,
        order_commands.PlaceOrder,
        order_commands.CancelOrder,
        order_commands.ShipOrder,
        order_commands.ReturnLines,
        order_commands.ExpireOrder,
        order_commands.JustifyReservation,
        order_commands.RecordReservations,
        order_commands.RecordMovements,
        order_events.OrderPlaced,
        order_events.ReservationsRecorded,
        order_events.OrderConfirmed,
        order_events.OrderRejected,
        order_events.OrderCancelled,
        order_events.OrderExpired,
        order_events.OrderShipped,
        order_events.OrderReturned,
        order_events.MovementsRecorded,
    )
}

ENCODERS: dict[type, Callable[[Any], bytes]] = {
    **inventory_encoders.ENCODERS,
    **kernel_encoders.ENCODERS,
    **order_encoders.ENCODERS,
}
