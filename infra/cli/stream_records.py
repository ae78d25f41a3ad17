"""Records of the log, whoever wrote them, as a terminal may show them."""

from __future__ import annotations

from typing import Any

from infra.cli.output import results
from infra.log.streams import StreamRecord
from services.kernel.record.envelope import format_time

SHOWN_BYTES = 200


def show_record(record: StreamRecord) -> None:
    """Print one record whole; of long bytes the beginning."""
    meta = record.metadata
    results.print(f"{record.position} {record.meaning}".rstrip())
    if meta is None:
        for name, text in record.headers:
            results.print(f"  {name}: {text!r}")
    else:
        results.print(f"  version {meta.version}, event {meta.id}, epoch {meta.epoch}, {meta.type}")
        results.print(f"  recorded {format_time(meta.recorded_at)} by {meta.source}")
    results.print(f"  key {record.key!r}, sha256 {record.digest}")
    results.print(f"  {record.body if record.body is not None else _bytes(record.value)}")


def _bytes(value: bytes | None) -> str:
    if value is None:
        return "no value"
    more = f" … {len(value)} bytes" if len(value) > SHOWN_BYTES else ""
    return f"cannot be read: {value[:SHOWN_BYTES].hex()}{more}"


def record_as_json(record: StreamRecord) -> dict[str, Any]:
    """For other tools; bytes are Base64."""
    meta = record.metadata
    return {
        "position": record.position,
        "meaning": record.meaning,
        "key": record.key,
        "headers": record.headers,
        "version": meta and meta.version,
        "event_id": meta and meta.id,
        "epoch": meta and meta.epoch,
        "recorded_at": meta and format_time(meta.recorded_at),
        "type": meta and meta.type,
        "sha256": record.digest,
        "body": record.body,
        "value": record.value,
    }
