"""Records to bytes and back: a dataclass, Avro, in Confluent framing (a zero byte, the schema id, the body).

Times and money stay integers: the logical types of the schemas are for other readers.

What one transaction sends to one partition of an inbox travels in one record, a batch (docs/adr/0021). A message is a
command, or outcomes, for one entity. It has its own id, key and content, so that it is executed, refused or parked
alone. It may also be a record of its own: that is how a parked message is sent again.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from confluent_kafka import Consumer, KafkaException, Message
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from contracts.kernel.records import InboxBatch, InboxGroup, InboxMessage
from contracts.lock import load_lock, plain
from contracts.records import ENCODERS, RECORDS
from contracts.topics import INBOXES
from contracts.upcasters import upcast
from services.kernel import KernelError
from services.kernel.record.envelope import (
    SYSTEM,
    UNKNOWN,
    AuthContext,
    Headers,
    Malformed,
    Metadata,
    ReplyAddress,
    group_auth_header,
    group_auths,
    read_headers,
    uuid7,
    write_headers,
)

FRAME = struct.Struct(">bI")
MOST_MESSAGES = 500  # of one record: as many as a worker executes in one batch
LARGEST_BATCH = 1 << 20  # bytes of content in one record, unless one group alone is larger
Record: TypeAlias = tuple[str, bytes, str | None, dict[str, Any]]
"""Topic, value, key, and what else `produce` takes."""


@cache
def schema_id(topic: str, type_name: str) -> int:
    """The id under which records of this type are written to `topic`. Raises KeyError."""
    return load_lock().id_of(f"{topic}-{type_name}")


@cache
def topic_of(type_name: str) -> str:
    """The one topic of a command or an event. Raises KeyError."""
    return load_lock().topic_of(type_name)


class Undecodable(KernelError, ValueError):
    """Not a record of ours: not framed, of an unknown schema, cut short, or longer than its schema says."""


def encode(topic: str, record: Any) -> bytes:
    """The value of `record` in `topic`. Raises KeyError where the type does not belong there."""
    return encoder(topic, record.__class__)(record)


@cache
def encoder(topic: str, record: type) -> Callable[[Any], bytes]:
    """`encode` for records of one class, many at a time. Raises KeyError."""
    frame, body = FRAME.pack(0, schema_id(topic, record.TYPE)), ENCODERS[record]  # type: ignore[attr-defined]
    return lambda instance: frame + body(instance)


def encode_first(topic: str, record: Any) -> bytes:
    """The value of `record` in the first version of its schema, for readers that know no later one. It is slow.

    What that version lacks is left out. Raises KeyError where the type does not belong to the topic.
    """
    schema_id(topic, record.TYPE)
    number = load_lock().ids(record.TYPE)[0]
    body = BytesIO(FRAME.pack(0, number))
    body.seek(FRAME.size)
    schemaless_writer(body, _schema(number), asdict(record))
    return body.getvalue()


def decode(value: bytes | None) -> Any:
    """The record in `value`, in its type's newest shape, whatever locked version it was written with.

    Raises `Undecodable`.
    """
    if value is None or len(value) < FRAME.size or value[0] != 0:
        raise Undecodable("not framed: no zero byte and schema id in front")
    number = FRAME.unpack_from(value)[1]
    try:
        schema, newest, build = _reader(number)
    except KeyError:
        raise Undecodable(f"schema id {number} is not in the lock") from None
    body = BytesIO(value)
    body.seek(FRAME.size)
    try:
        record = schemaless_reader(body, schema, None)
    except (EOFError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise Undecodable(f"schema {number}: {error!r}") from error
    if body.tell() != len(value):
        raise Undecodable(f"schema {number}: {len(value) - body.tell()} bytes too many")
    return build(record if newest else upcast(record, number, load_lock()))


@cache
def _reader(number: int) -> tuple[Any, bool, Callable[[dict[str, Any]], Any]]:
    lock = load_lock()
    kind = lock.type_of(number)
    return _schema(number), lock.ids(kind)[-1] == number, _builder(RECORDS[kind])


@cache
def _schema(number: int) -> Any:
    return parse_schema(plain(load_lock().schema(number)))


def _parts(record: type) -> Iterator[tuple[str, bool, Callable[[dict[str, Any]], Any] | None]]:
    """The fields that are not plain: name, whether it is a sequence, and what builds the record or its items (None:
    plain items)."""
    for name, hint in get_type_hints(record).items():
        many = get_origin(hint) is tuple
        part = get_args(hint)[0] if many else hint
        inner = _builder(part) if hasattr(part, "TYPE") else None
        if many or inner is not None:
            yield name, many, inner


def _builder(record: type) -> Callable[[dict[str, Any]], Any]:
    """Puts an instance around the decoded dictionary: a frozen dataclass's constructor takes far longer."""
    parts = list(_parts(record))
    new, adopt = object.__new__, object.__setattr__

    def build_plain(fields: dict[str, Any]) -> Any:
        instance: Any = new(record)
        adopt(instance, "__dict__", fields)
        return instance

    def build(fields: dict[str, Any]) -> Any:
        for name, many, inner in parts:
            part = fields[name]
            if inner is None:
                fields[name] = tuple(part)
            else:
                fields[name] = tuple([inner(item) for item in part]) if many else inner(part)
        return build_plain(fields)

    return build if parts else build_plain


class OutgoingMessage(NamedTuple):
    """An `InboxMessage` that is written: an order makes dozens, and this takes a third of the time."""

    id: str
    subject: str
    tag: str
    value: bytes


class MessageGroup(NamedTuple):
    """An `InboxGroup` that is written: messages of one type and cause for one partition of an inbox.

    `auth` travels in a header of the record, which workers of an earlier version pass over.
    """

    topic: str
    partition: int
    type: str
    correlation_id: str
    causation_id: str
    traceparent: str
    reply_topic: str
    reply_key: str
    messages: list[OutgoingMessage]
    auth: AuthContext = UNKNOWN


class Received(NamedTuple):
    """One message as it was read. `number` is its number in its record; None: it is the whole record."""

    key: bytes | None
    value: bytes | None
    metadata: Metadata
    number: int | None = None


def batch_records(groups: Iterable[MessageGroup], sender: Metadata) -> Iterator[Record]:
    """As few records as possible, for each partition. `sender` has source, time, epoch and transaction."""
    by_partition: dict[tuple[str, int], list[MessageGroup]] = {}
    for group in groups:
        by_partition.setdefault((group.topic, group.partition), []).append(group)
    for (topic, partition), own in by_partition.items():
        for part in _bounded(own):
            batch = InboxBatch(tuple(part))  # type: ignore[arg-type] # the encoder only reads their fields
            yield (
                topic,
                encode(topic, batch),
                None,
                {"partition": partition, "headers": _headers(part, sender)},
            )


def _headers(groups: Sequence[MessageGroup], sender: Metadata) -> Headers:
    """The headers of a batch of these groups."""
    batch_id = uuid7()
    metadata = sender._replace(
        id=batch_id, type=InboxBatch.TYPE, correlation_id=batch_id, causation_id=batch_id
    )
    auths = [group.auth for group in groups]
    if auths.count(auths[0]) == len(auths):
        return write_headers(metadata._replace(auth=auths[0]))
    return [*write_headers(metadata._replace(auth=SYSTEM)), group_auth_header(auths)]


def single_records(groups: Iterable[MessageGroup], sender: Metadata) -> Iterator[Record]:
    """One record for each message, as workers read them that know no batches."""
    for group in groups:
        for message in group.messages:
            headers = write_headers(_metadata(group, message, sender, group.auth))
            yield group.topic, message.value, message.subject, {"headers": headers}


def what_is_there(consumer: Consumer, most: int, seconds: float) -> list[Message]:
    """Up to `most` records, ends of partitions and errors; waits up to `seconds` for the first one only.

    `consume(most, seconds)` would wait for the last of them.
    """
    records: list[Message] = consumer.consume(1, seconds)
    if records:
        records += consumer.consume(most - 1, 0)
    return records


def sound(records: list[Message]) -> list[Message]:
    """Without what the client mends by itself. Raises KafkaException for what it cannot mend."""
    for record in records:
        if (error := record.error()) is not None and not error.retriable():
            raise KafkaException(error)
    return [record for record in records if record.error() is None]


def received(record: Message) -> list[Received]:
    """The messages of a record of an input. Raises `Malformed` or `Undecodable` where it cannot be read."""
    metadata = read_headers(record.headers())
    if metadata.type != InboxBatch.TYPE:
        return [Received(record.key(), record.value(), metadata)]
    if record.topic() not in INBOXES:
        raise Malformed("only an inbox contains batches of messages")
    return messages_of(record.value(), record.headers() or ())


def messages_in(record: Message) -> list[Received]:
    """`received` for tools that skip what they cannot read: no message for an unreadable record."""
    try:
        return received(record)
    except (Malformed, Undecodable):
        return []


def messages_of(value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> list[Received]:
    """The messages of a batch. Raises like `received`."""
    metadata, batch = read_headers(headers), decode(value)
    if not isinstance(batch, InboxBatch):
        raise Malformed(f"a {type(batch).__name__} is not a batch of messages")
    auths = group_auths(headers, len(batch.groups)) or [metadata.auth] * len(batch.groups)
    messages = [
        (group, message, auth)
        for group, auth in zip(batch.groups, auths, strict=True)
        for message in group.messages
    ]
    return [
        Received(message.subject.encode(), message.value, _metadata(group, message, metadata, auth), number)
        for number, (group, message, auth) in enumerate(messages)
    ]


def own_headers(record: Message, message: Received) -> Headers:
    """The headers with which the message is a record of its own."""
    return (record.headers() or []) if message.number is None else write_headers(message.metadata)


def _bounded(groups: list[MessageGroup]) -> Iterator[list[MessageGroup]]:
    """The groups in their order, so many at a time that a record stays within its bounds."""
    part: list[MessageGroup] = []
    count = size = 0
    for group in groups:
        own_count, own_size = len(group.messages), sum([len(message.value) for message in group.messages])
        if part and (count + own_count > MOST_MESSAGES or size + own_size > LARGEST_BATCH):
            yield part
            part, count, size = [], 0, 0
        part.append(group)
        count, size = count + own_count, size + own_size
    if part:
        yield part


def _metadata(
    group: InboxGroup | MessageGroup,
    message: InboxMessage | OutgoingMessage,
    sender: Metadata,
    auth: AuthContext,
) -> Metadata:
    """The envelope that the message would have as a record of its own."""
    topic = group.reply_topic
    return Metadata(
        message.id,
        group.type,
        message.subject,
        sender.source,
        sender.recorded_at,
        group.correlation_id,
        group.causation_id or message.id,
        sender.epoch,
        reply_to=ReplyAddress(topic, None, message.tag, group.reply_key) if topic else None,
        transaction=sender.transaction,
        traceparent=group.traceparent,
        auth=auth,
    )
