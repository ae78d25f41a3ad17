"""Counting and naming records that are not of our log. Which ones they are: `rule.py` for events, and
`answer_of` for recorded outcomes."""

from __future__ import annotations

import structlog
from confluent_kafka import Message
from prometheus_client import Counter

from contracts.kernel.records import Answer
from services.kernel.record.codec import Undecodable, decode

FOREIGN = Counter("daybook_foreign_records", "Records that are not of our log, skipped", ["topic"])

log = structlog.get_logger()


def answer_of(record: Message) -> Answer | None:
    """The recorded outcome that a record of an answers topic contains; None where the record is foreign."""
    try:
        recorded = decode(record.value())
    except Undecodable:
        return None
    key = (record.key() or b"").decode(errors="replace")
    return recorded if isinstance(recorded, Answer) and recorded.outcome.subject == key else None


def foreign(record: Message, reason: str) -> None:
    """Called by a reader that skips a record, once for each time that it reads it."""
    FOREIGN.labels(record.topic()).inc()
    log.warning("foreign_record", position=place_of(record), reason=reason, next="`daybook streams list`")


def place_of(record: Message) -> str:
    """Topic, partition and offset, as the commands take them."""
    return f"{record.topic()}/{record.partition()}/{record.offset()}"
