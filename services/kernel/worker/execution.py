"""Executing one batch of commands on staged copies of the entities: no I/O, nothing is published.

The effects of the batch (events, outcomes, outgoing and parked commands) are collected in a `Staged`, ready
to be produced in one transaction; the entities change only when the loop publishes it after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

from confluent_kafka import Message

from contracts.kernel.records import Header, Outcome, OutcomeBatch, ParkedCommand, Remembered
from contracts.topics import INBOXES, SERVICE_OF, TOPICS
from services.kernel.errors import KernelError
from services.kernel.log.control import Phase
from services.kernel.log.rule import home_of
from services.kernel.model.decider import Refused
from services.kernel.model.process import Aggregate, OutgoingCommand, Reply
from services.kernel.record.codec import (
    MOST_MESSAGES,
    MessageGroup,
    OutgoingMessage,
    Received,
    Record,
    Undecodable,
    batch_records,
    decode,
    encode,
    encode_first,
    encoder,
    own_headers,
    received,
    schema_id,
    single_records,
    topic_of,
)
from services.kernel.record.envelope import LARGEST_NUMBER, Malformed, Metadata, uuid7
from services.kernel.worker.entities import Entity, Partition, Staged, StagedEvent, unexpected

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")
STREAM_FORKED = "stream_forked"
LONGEST_REASON = 500  # an error may quote all of what it could not read


class LaterEpoch(KernelError):
    """Somebody writes in a later site epoch: this worker's time is over."""


def later_epoch(claimed: int, own: int, site: int) -> LaterEpoch | Malformed:
    """What a command of an epoch later than the worker's own means, where the site is in epoch `site` now."""
    about = f"a command of epoch {claimed}, this worker writes in {own}"
    return LaterEpoch(about) if site >= claimed else Malformed(about)


def answerable(metadata: Metadata) -> Metadata:
    """The same. Raises `Malformed`: an outcome for a place where none can be written would stop the slot."""
    if (address := metadata.reply_to) is not None:
        try:
            schema_id(address.topic, OutcomeBatch.TYPE)
        except KeyError:
            raise Malformed(f"no outcomes are written to {address.topic!r}") from None
        if address.partition is None and not address.key:
            raise Malformed("an outcome needs a partition or a key")
    return metadata


def require_address(partition: int, partitions: int, key: str, metadata: Metadata) -> None:
    """Raises `Malformed`: a foreign producer with another partitioner would give one entity two writers."""
    if metadata.subject != key:
        raise Malformed(f"the key is {key!r}, the subject {metadata.subject!r}")
    if home_of(key, partitions) != partition:
        raise Malformed(f"{key!r} does not belong to partition {partition}: produce with murmur2")


class Routing:
    """Where one service's worker writes commands and outcomes, and what it accepts on which input.

    `phase` is the site's phase at the beginning of the batch. In `commands` and `inbox` a worker of an earlier
    version may still write to the commands; in `closed` only APIs do.
    """

    def __init__(self, service: str, phase: Phase, counts: Mapping[str, int], epoch: int) -> None:
        """`counts`: how many partitions each topic has."""
        self._service, self.phase, self._counts, self._epoch = service, phase, counts, epoch

    def command_topic(self, type_name: str) -> str:
        """Where a command of this type is written. Raises KeyError."""
        return self._in_phase(topic_of(type_name))

    def reply_topic(self) -> str:
        """Where the entities of this service want outcomes."""
        return self._in_phase(TOPICS[self._service].inbox)

    def routed(self, input_topic: str, metadata: Metadata) -> Metadata:
        """The same, with the address to which the outcome of a record from `input_topic` goes, if to any.

        Of the address in the header only the service, the partition and the key count. An API's command has
        its outcome among the outcomes of this service; only what a worker sent gets a reply.
        """
        if (given := metadata.reply_to) is None:
            return metadata
        if given.partition is not None:
            topic = TOPICS[self._service].outcomes
        elif input_topic in INBOXES or self.phase != "closed":
            topic = self._in_phase(TOPICS[SERVICE_OF[given.topic]].inbox)
        else:
            return metadata._replace(reply_to=None)
        if topic == given.topic:  # almost always: two new tuples are a tenth of a reservation
            return metadata
        return metadata._replace(reply_to=given._replace(topic=topic))

    def require_input(self, topic: str, command: Any) -> None:
        """Raises `Malformed` for a command or an outcome on the other input, KeyError for no command."""
        is_outcome = isinstance(command, OutcomeBatch)
        own = TOPICS[self._service].inbox if is_outcome else topic_of(command.TYPE)
        if topic != own and (topic in INBOXES or self.phase == "closed"):
            raise Malformed(f"{command.TYPE} belongs to {own}")

    def outgoing(
        self,
        key: str,
        commands: Sequence[OutgoingCommand],
        correlation: str,
        cause: str,
        traceparent: str = "",
    ) -> list[MessageGroup]:
        """Commands of the entity `key` to others (or, for a deadline, to itself), by partition of their inbox."""
        groups: list[MessageGroup] = []
        for kind, alike in groupby(commands, lambda command: type(command.command)):
            topic = self.command_topic(kind.TYPE)
            count, encoded = self._counts[topic], encoder(topic, kind)  # type: ignore[arg-type] # a class is hashable
            reply = ("", "") if SERVICE_OF[topic] == self._service else (self.reply_topic(), key)
            about = kind.TYPE, correlation, cause, traceparent, *reply
            latest: dict[int, list[OutgoingMessage]] = {}
            for command in alike:
                partition = home_of(command.key, count)
                messages = latest.get(partition)
                if messages is None or len(messages) == MOST_MESSAGES:
                    messages = latest[partition] = []
                    groups.append(MessageGroup(topic, partition, *about, messages))
                value = encoded(command.command)
                messages.append(OutgoingMessage(command.id, command.key, command.tag, value))
        return groups

    def reply(
        self, key: str, topic: str, outcomes: Sequence[Outcome], correlation: str, traceparent: str
    ) -> MessageGroup:
        """Outcomes for one entity of another aggregate. Their message is its own cause."""
        value = self.encode(topic, OutcomeBatch(tuple(outcomes), self._epoch))
        about = OutcomeBatch.TYPE, correlation, "", traceparent, "", ""
        messages = [OutgoingMessage(uuid7(), key, "", value)]
        return MessageGroup(topic, home_of(key, self._counts[topic]), *about, messages)

    def encode(self, topic: str, record: Any) -> bytes:
        """Its value, in a version of its schema that every process knows which may read it in this phase."""
        return encode(topic, record) if self.phase == "closed" else encode_first(topic, record)

    def records(self, groups: Sequence[MessageGroup], recorded: int, transaction: str) -> Iterator[Record]:
        """The records of these messages. While workers move to the inbox, some may not know batches yet."""
        sender = Metadata(
            "", "", "", f"daybook/{self._service}", recorded, "", "", self._epoch, transaction=transaction
        )
        write = batch_records if self.phase == "closed" else single_records
        return write(groups, sender)

    def _in_phase(self, topic: str) -> str:
        if self.phase == "commands" and topic in INBOXES:
            return TOPICS[SERVICE_OF[topic]].commands
        return topic


class Executor(Generic[Command, State, Event]):
    """Runs commands, one after the other, against partitions and what the batch has staged so far."""

    def __init__(
        self,
        aggregate: Aggregate[Command, State, Event],
        partitions: dict[int, Partition[State]],
        counts: Mapping[str, int],
        epoch: int,
        site_epoch: Callable[[], int] = lambda: LARGEST_NUMBER,
        phase: Callable[[], Phase] = lambda: "commands",
    ) -> None:
        """`counts`: how many partitions each topic has. `site_epoch` and `phase` return those of the site now."""
        self._site_epoch, self._site_phase = site_epoch, phase
        self.routing = Routing(aggregate.name, phase(), counts, epoch)
        self._aggregate, self._decider, self._process = aggregate, aggregate.decider, aggregate.process
        self._partitions, self._epoch = partitions, epoch
        own, self._source = TOPICS[aggregate.name], f"daybook/{aggregate.name}"
        self._count, self._events_topic = counts[own.commands], own.events

    def begin_batch(self) -> Phase:
        """Follow the site's phase. Within one batch it does not change: no deadline overtakes an outcome."""
        self.routing.phase = self._site_phase()
        return self.routing.phase

    def execute(self, record: Message, staged: Staged[State], now: int) -> int:
        """The messages of one record of an input; returns how many. Never raises for what they hold: it is parked."""
        try:
            messages = received(record)
        except (Malformed, Undecodable) as error:
            self._park(record, None, None, _reason(error), staged, now)
            return 1
        for message in messages:
            self._execute(record, message, staged, now)
        return len(messages)

    def _execute(self, record: Message, message: Received, staged: Staged[State], now: int) -> None:
        metadata: Metadata | None = None  # until it is known where its outcome goes
        try:
            metadata = self.routing.routed(record.topic(), answerable(message.metadata))
            if metadata.epoch < self._epoch:  # it belongs to before a failover
                staged.counts[metadata.type, "skipped"] += 1
                return
            if metadata.epoch > self._epoch:
                raise later_epoch(metadata.epoch, self._epoch, self._site_epoch())
            if message.key is None:
                raise Malformed("it has no key")
            key, number = message.key.decode(), record.partition()
            body = decode(message.value)
            require_address(number, self._count, key, metadata)
            self.routing.require_input(record.topic(), body)
            if key in self._partitions[number].read.stopped:
                self._unavailable(metadata, staged)
                return
            for command in self._commands(key, body):
                outcome = self._one(number, key, metadata, command, staged, now)
                self._reply(metadata, outcome, staged)
        except LaterEpoch:
            raise
        except Exception as error:  # nothing here does I/O: whatever is raised is the command's own doing
            self._park(record, message, metadata, _reason(error), staged, now)

    def _commands(self, key: str, body: Any) -> Sequence[Any]:
        if not isinstance(body, OutcomeBatch):
            return (body,)
        replies = [
            Reply(o.command_type, o.subject, o.tag, o.kind == "accepted", o.code) for o in body.outcomes
        ]
        return self._process.record(key, replies)

    def _one(
        self, number: int, key: str, meta: Metadata, command: Any, staged: Staged[State], now: int
    ) -> Outcome:
        """Seen before? Expected version? Decide. Stage what follows."""
        partition = self._partitions[number]
        entity = staged.entities.get((number, key)) or partition.get(key)
        earlier = staged.outcomes.get((number, key, meta.id))
        seen = earlier.outcome if earlier else partition.outcomes.outcome(key, meta.id)
        if seen is not None:
            return self._again(seen, meta, entity, staged)
        if reason := unexpected(meta.expected_version, entity.version):
            outcome = self._outcome(meta, entity, "conflict", code="version_conflict", reason=reason)
        else:
            try:
                events = self._decider.decide(command, entity.state)
            except Refused as refusal:
                outcome = self._outcome(meta, entity, "refused", code=refusal.code, reason=refusal.reason)
            else:
                if events:
                    return self._append(number, key, meta, entity, events, staged, now)
                outcome = self._outcome(meta, entity, "accepted")
        staged.counts[meta.type, outcome.kind] += 1
        # An outcome without events is recorded nowhere else: it goes to the answers topic. But not "already so" to
        # another aggregate: the state shows that, and only while it is true (a failover may lose what made it so).
        if meta.reply_to is not None and (meta.request_hash or outcome.kind != "accepted"):
            recorded_outcome = Remembered(outcome, now)
            staged.outcomes[number, key, meta.id] = recorded_outcome
            staged.unrecorded.append((number, key, recorded_outcome))
        return outcome

    def _append(
        self,
        number: int,
        key: str,
        meta: Metadata,
        entity: Entity[State],
        events: Sequence[Event],
        staged: Staged[State],
        now: int,
    ) -> Outcome:
        state, version = entity.state, entity.version
        new: list[StagedEvent] = []
        outgoing: list[MessageGroup] = []
        for event in events:
            state, version = self._decider.evolve(state, event), version + 1
            value = encode(self._events_topic, event)
            about = Metadata(
                id=uuid7(),
                type=event.TYPE,  # type: ignore[attr-defined]
                subject=key,
                source=self._source,
                recorded_at=now,
                correlation_id=meta.correlation_id,
                causation_id=meta.id,
                epoch=self._epoch,
                version=version,
                request_hash=meta.request_hash,
                traceparent=meta.traceparent,
            )
            new.append(StagedEvent(number, key, value, about))
            reaction = self._process.react(event, state)
            outgoing.extend(
                self.routing.outgoing(key, reaction, meta.correlation_id, about.id, meta.traceparent)
            )
        changed = Entity(state, version, now)
        outcome = self._outcome(meta, changed, "accepted", events=tuple(event.metadata.id for event in new))
        staged.events.extend(new)
        staged.send(outgoing)
        staged.entities[number, key] = changed
        if meta.request_hash:  # conversations are recognised by the state that they leave
            staged.outcomes[number, key, meta.id] = Remembered(outcome, now)
        staged.counts[meta.type, "accepted"] += 1
        return outcome

    def _again(self, seen: Outcome, meta: Metadata, entity: Entity[State], staged: Staged[State]) -> Outcome:
        if seen.request_hash != meta.request_hash:
            staged.counts[meta.type, "reused"] += 1
            reason = "this idempotency key was used for another request"
            return self._outcome(meta, entity, "refused", code="idempotency_key_reused", reason=reason)
        staged.counts[meta.type, "replayed"] += 1
        return Outcome(**{**vars(seen), "command_type": meta.type, "tag": _tag(meta), "replayed": True})

    def _outcome(
        self,
        meta: Metadata,
        entity: Entity[State],
        kind: Any,
        events: tuple[str, ...] = (),
        code: str = "",
        reason: str = "",
    ) -> Outcome:
        return Outcome(
            command_id=meta.id,
            command_type=meta.type,
            subject=meta.subject,
            tag=_tag(meta),
            kind=kind,
            version=entity.version,
            event_ids=events,
            status=self._decider.status(entity.state) if entity.version else "",
            code=code,
            reason=reason,
            request_hash=meta.request_hash,
            replayed=False,
            epoch=self._epoch,
        )

    def _reply(self, meta: Metadata, outcome: Outcome, staged: Staged[State]) -> None:
        if meta.reply_to is not None:
            address = meta.reply_to
            staged.replies.setdefault((address.topic, address.partition, address.key), []).append(outcome)
            staged.correlations.setdefault(address.key, (meta.correlation_id, meta.traceparent))

    def _unavailable(self, meta: Metadata, staged: Staged[State]) -> None:
        """Nothing is decided on a stream that stopped. Another aggregate retries; an API gets the outcome `failed`."""
        staged.counts[meta.type, "unavailable"] += 1
        if meta.reply_to is not None and meta.reply_to.partition is not None:
            reason = "the stream has stopped: an operator must decide on one of its records"
            self._fail(meta, STREAM_FORKED, reason, staged)

    def _park(
        self,
        record: Message,
        message: Received | None,
        meta: Metadata | None,
        reason: str,
        staged: Staged[State],
        now: int,
    ) -> None:
        """A message of a batch is parked as a record of its own: so it can be sent again alone."""
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        position, written = f"{topic}/{partition}/{offset}", record.headers() or []
        key, value = record.key(), record.value()
        if message is not None:
            key, value, written = message.key, message.value, own_headers(record, message)
            position += "" if message.number is None else f"/{message.number}"
        headers = tuple(Header(name, content or b"") for name, content in written)
        parked = ParkedCommand(topic, partition, offset, reason, key or b"", value or b"", headers, now)
        staged.parked.append((position, parked))
        staged.counts[meta.type if meta else "unknown", "failed"] += 1
        if meta is not None:
            self._fail(meta, "command_failed", reason, staged)

    def _fail(self, meta: Metadata, code: str, reason: str, staged: Staged[State]) -> None:
        absent = Entity(self._decider.initial, 0, 0)
        self._reply(meta, self._outcome(meta, absent, "failed", code=code, reason=reason), staged)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]


def _tag(meta: Metadata) -> str:
    return meta.reply_to.tag if meta.reply_to is not None else ""
