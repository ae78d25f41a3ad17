"""The checker's evidence: every committed record of both services, and the outcomes that clients received.

Foreign records and openings of epochs are no events (`infra/log/event_log.py`): they are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from contracts.kernel.records import RecordVerdict
from contracts.topics import INPUTS, TOPICS
from infra.log.database import in_database
from infra.log.event_log import EVENT_TOPICS, decoded, journal_at, read_log
from services.kernel.log import clients
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import Event, Step, step
from services.kernel.record.codec import messages_in
from services.kernel.record.envelope import Metadata

BESIDE_THE_LOGS = (
    *INPUTS,
    *(own.outcomes for own in TOPICS.values()),
    *(own.answers for own in TOPICS.values()),
)
DATABASE_SECONDS = 600.0
_SEEN = """
SELECT event_id FROM order_history.entry
UNION SELECT event_id FROM orders.orders
UNION SELECT event_id FROM stock.stock"""


@dataclass(frozen=True)
class Recorded:
    """One event and its position; `partitions` is the number of the topic's partitions.

    `event` is None where its value cannot be decoded; `verdict` is the decision about it, if there is one.
    """

    topic: str
    partition: int
    partitions: int
    offset: int
    key: str
    metadata: Metadata
    event: Any
    verdict: RecordVerdict | None = None


@dataclass(frozen=True)
class Sent:
    """A command, a batch of outcomes or a recorded outcome.

    `transaction` is the id of the worker's transaction that wrote it; empty for what a client sent.
    `metadata` is None for what has no envelope: outcomes for an API, and recorded outcomes.
    """

    topic: str
    key: str
    transaction: str
    metadata: Metadata | None
    body: Any


@dataclass(frozen=True)
class Acknowledged:
    """The outcome of one command that a client received; `kind` as in an outcome."""

    command_id: str
    subject: str
    kind: str
    version: int
    event_ids: tuple[str, ...] = ()
    code: str = ""


@dataclass
class Evidence:
    """`seen` are the event ids that a reader has applied (a read model, a lake). `sent` is everything beside the
    events, or nothing where the pairing of the two is not judged. `at_rest`: no conversation is under way."""

    events: list[Recorded]
    acknowledged: list[Acknowledged] = field(default_factory=list)
    seen: Iterable[str] = ()
    sent: list[Sent] = field(default_factory=list)
    at_rest: bool = False


def read_evidence(bootstrap: str, logs: Iterable[str] = EVENT_TOPICS) -> list[Recorded]:
    """Every committed event, per partition in offset order, without copies of a record that is judged genuine."""
    journal, events = journal_at(bootstrap), []
    read: dict[tuple[str, str], int] = defaultdict(int)
    for topic in logs:
        partitions = len(partitions_of(bootstrap, topic))
        for record, kind in read_log(bootstrap, topic, journal=journal):
            if not isinstance(kind, Event):
                continue
            meta, stream = kind.metadata, (topic, kind.metadata.subject)
            if step(read[stream], kind) is not Step.APPLIED:
                at = (topic, record.partition(), partitions, record.offset())
                events.append(Recorded(*at, meta.subject, meta, decoded(record.value()), kind.verdict))
            read[stream] = max(read[stream], meta.version)
    return events


def read_seen(database_url: str) -> set[str]:
    """The ids of the events that the read models contain: all of orders, the last of each SKU."""
    rows = in_database(database_url, lambda connection: connection.fetch(_SEEN), DATABASE_SECONDS)
    return {row["event_id"] for row in rows}


def read_sent(bootstrap: str) -> list[Sent]:
    """Every committed command, outcome and recorded outcome; what cannot be decoded is left out.

    None at all where retention has removed some: then the pairing cannot be judged any more.
    """
    partitions = {topic: partitions_of(bootstrap, topic) for topic in BESIDE_THE_LOGS}
    if any(_begins_late(bootstrap, topic, numbers) for topic, numbers in partitions.items()):
        return []
    return [
        sent for topic in partitions for record in read_to_end(bootstrap, topic) for sent in sent_in(record)
    ]


def _begins_late(bootstrap: str, topic: str, partitions: list[int]) -> bool:
    admin = clients.admin(bootstrap)
    earliest = {TopicPartition(topic, number): OffsetSpec.earliest() for number in partitions}
    return any(future.result().offset > 0 for future in admin.list_offsets(earliest).values())


def sent_in(record: Message) -> Iterator[Sent]:
    """What one record contains: a record of an inbox may contain many messages."""
    topic = record.topic()
    if topic in INPUTS:
        for message in messages_in(record):
            if (body := decoded(message.value)) is not None:
                metadata = message.metadata
                yield Sent(topic, (message.key or b"").decode(), metadata.transaction, metadata, body)
    elif (body := decoded(record.value())) is not None:
        transaction = dict(record.headers() or ()).get("ce_transaction", b"").decode()
        yield Sent(topic, (record.key() or b"").decode(), transaction, None, body)
