"""Every event of an order as readable JSON, with its metadata: the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from services.kernel.record.envelope import Metadata


@dataclass(frozen=True)
class HistoryRow:
    """One event. Times are micros UTC; `body` is the event's fields as plain values."""

    order_id: str
    version: int
    event_id: str
    type: str
    recorded_at: int
    occurred_at: int
    epoch: int
    source: str
    correlation_id: str
    causation_id: str
    auth_type: str
    auth_id: str | None
    body: dict[str, Any]


@dataclass(frozen=True)
class History:
    """`entries` are those that are not written yet: a row that was loaded for folding has none."""

    entries: tuple[HistoryRow, ...] = ()


def fold(row: History | None, event: Any, metadata: Metadata) -> History:
    """The history with the event at its end."""
    entry = HistoryRow(
        order_id=metadata.subject,
        version=metadata.version,
        event_id=metadata.id,
        type=metadata.type,
        recorded_at=metadata.recorded_at,
        occurred_at=event.occurred_at,
        epoch=metadata.epoch,
        source=metadata.source,
        correlation_id=metadata.correlation_id,
        causation_id=metadata.causation_id,
        auth_type=metadata.auth.type,
        auth_id=metadata.auth.id or None,
        body=msgspec.to_builtins(event),
    )
    return History((*(row.entries if row else ()), entry))
