"""Executing one batch of commands on staged copies of the entities: no I/O, nothing is published.

The effects of the batch (events, outcomes, outgoing and parked commands) are collected in a `Staged`, ready
to be produced in one transaction; the entities change only when the loop publishes it after the commit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from confluent_kafka import Message

from contracts.kernel.records import Header, Outcome, OutcomeBatch, ParkedCommand, Remembered
from contracts.topics import TOPICS
from services.kernel.log.control import Phase
from services.kernel.model.decider import Command, Event, Refused, State
from services.kernel.model.process import Aggregate, Reply
from services.kernel.record.codec import (
    MessageGroup,
    Received,
    Undecodable,
    decode,
    encode,
    own_headers,
    received,
)
from services.kernel.record.envelope import LARGEST_NUMBER, UNKNOWN, Malformed, Metadata, uuid7
from services.kernel.worker.addresses import LaterEpoch, Routing, answerable, later_epoch, require_address
from services.kernel.worker.entities import Entity, Partition, Staged, StagedEvent, unexpected

STREAM_FORKED = "stream_forked"
LONGEST_REASON = 500  # an error may quote all of what it could not read


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
        self._decider, self._process = aggregate.decider, aggregate.process
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
                self._unavailable(self._partitions[number], key, metadata, body, staged)
                return
            for command in self._commands(key, body):
                self._reply(metadata, self._one(number, key, metadata, command, staged, now), staged)
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
        seen = self._seen(number, key, meta.id, staged)
        if seen is None and meta.former_id:
            seen = self._seen(number, key, meta.former_id, staged)
            if seen is not None and seen.request_hash != meta.request_hash:
                seen = None  # of another principal, who chose the same idempotency key
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

    def _seen(self, number: int, key: str, command_id: str, staged: Staged[State]) -> Outcome | None:
        """The outcome of this command, if it was executed within the retry window."""
        earlier = staged.outcomes.get((number, key, command_id))
        return earlier.outcome if earlier else self._partitions[number].outcomes.outcome(key, command_id)

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
                auth=meta.auth,
            )
            new.append(StagedEvent(number, key, encode(self._events_topic, event), about))
            reaction = self._process.react(event, state)
            outgoing.extend(
                self.routing.outgoing(
                    key, reaction, meta.correlation_id, about.id, meta.traceparent, meta.auth
                )
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
        own = {"command_id": meta.id, "command_type": meta.type, "tag": _tag(meta), "replayed": True}
        return Outcome(**{**vars(seen), **own})

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
            auth = meta.auth if address.partition is None else UNKNOWN  # an API knows who waits
            receiver = address.topic, address.partition, address.key, auth
            staged.replies.setdefault(receiver, []).append(outcome)
            staged.correlations.setdefault(address.key, (meta.correlation_id, meta.traceparent))

    def _unavailable(
        self, partition: Partition[State], key: str, meta: Metadata, command: Any, staged: Staged[State]
    ) -> None:
        """Nothing is decided on a stream that stopped. Another aggregate retries; an API gets the outcome `failed`,
        or the refusal for those who may not know of the entity, by its state from before the stop."""
        staged.counts[meta.type, "unavailable"] += 1
        if meta.reply_to is not None and meta.reply_to.partition is not None:
            kind, code = "failed", STREAM_FORKED
            reason = "the stream has stopped: an operator must decide on one of its records"
            try:
                self._decider.decide(command, partition.get(key).state)
            except Refused as refusal:
                if refusal.hides:
                    kind, code, reason = "refused", refusal.code, refusal.reason
            self._deny(meta, kind, code, reason, staged)

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
            self._deny(meta, "failed", "command_failed", reason, staged)

    def _deny(self, meta: Metadata, kind: str, code: str, reason: str, staged: Staged[State]) -> None:
        absent = Entity(self._decider.initial, 0, 0)
        self._reply(meta, self._outcome(meta, absent, kind, code=code, reason=reason), staged)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]


def _tag(meta: Metadata) -> str:
    return meta.reply_to.tag if meta.reply_to is not None else ""
