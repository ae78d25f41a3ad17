"""Executing one batch of commands on staged copies of the entities: no I/O, nothing is published.

What the batch makes of the world (events, outcomes, asks, parked commands) is collected in a `Staged`, ready
to be produced in one transaction; the entities change only when the loop publishes it after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from confluent_kafka import Message

from contracts.kernel.records import Header, Outcome, OutcomeBatch, ParkedCommand, Remembered
from contracts.topics import SERVICE_OF, TOPICS
from services.kernel.log.control import Phase
from services.kernel.model.decider import Refused
from services.kernel.model.process import Aggregate, Answered, Ask
from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import LARGEST_NUMBER, Metadata, read_headers, uuid7
from services.kernel.worker.addressing import LaterEpoch, Routing, answerable, later_epoch, require_address
from services.kernel.worker.entities import Partition
from services.kernel.worker.entity import Entity, unexpected
from services.kernel.worker.staged import Staged, StagedAsk, StagedEvent

Command = TypeVar("Command")
State = TypeVar("State")
Event = TypeVar("Event")

STREAM_FORKED = "stream_forked"
LONGEST_REASON = 500  # an error may quote all of what it could not read


class Executor(Generic[Command, State, Event]):
    """Runs commands, one after the other, against partitions and what the batch has staged so far."""

    def __init__(
        self,
        aggregate: Aggregate[Command, State, Event],
        partitions: dict[int, Partition[State]],
        partition_count: int,
        epoch: int,
        site_epoch: Callable[[], int] = lambda: LARGEST_NUMBER,
        phase: Callable[[], Phase] = lambda: "commands",
    ) -> None:
        """`site_epoch` and `phase` return those of the site as they are now."""
        self._site_epoch, self._routing, self.phase = site_epoch, Routing(aggregate.name, phase), phase
        self._aggregate, self._decider, self._process = aggregate, aggregate.decider, aggregate.process
        self._partitions, self._count, self._epoch = partitions, partition_count, epoch
        self._source = f"daybook/{aggregate.name}"
        self._events_topic = TOPICS[aggregate.name].events

    def execute(self, record: Message, staged: Staged[State], now: int) -> None:
        """One record of an input. Never raises for what a command holds: it is parked then."""
        metadata: Metadata | None = None
        try:
            metadata = self._routing.routed(record.topic(), answerable(read_headers(record.headers())))
            if metadata.epoch < self._epoch:  # it belongs to before a failover
                staged.counts[metadata.type, "skipped"] += 1
                return
            if metadata.epoch > self._epoch:
                raise later_epoch(metadata.epoch, self._epoch, self._site_epoch())
            key = record.key().decode()
            body = decode(record.value())
            require_address(record.partition(), self._count, key, metadata)
            self._routing.require_input(record.topic(), body)
            if key in self._partitions[record.partition()].read.stopped:
                self._unavailable(metadata, staged)
                return
            for command in self._commands(key, body):
                outcome = self._one(record.partition(), key, metadata, command, staged, now)
                self._reply(metadata, outcome, staged)
        except LaterEpoch:
            raise
        except Exception as error:  # nothing here does I/O: whatever is raised is the command's own doing
            reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
            self._park(record, metadata, reason, staged, now)

    def asks(
        self, key: str, asks: Sequence[Ask], correlation: str, cause: str, now: int, traceparent: str = ""
    ) -> Iterator[StagedAsk]:
        """Commands to other aggregates (or, for a deadline, to the same one), ready to be produced."""
        for ask in asks:
            kind = type(ask.command)
            topic = self._routing.command_topic(kind.TYPE)
            own = SERVICE_OF[topic] == self._aggregate.name
            metadata = Metadata(
                id=ask.id,
                type=kind.TYPE,
                subject=ask.key,
                source=self._source,
                recorded_at=now,
                correlation_id=correlation,
                causation_id=cause,
                epoch=self._epoch,
                reply_to=None if own else self._routing.reply_address(ask.tag, key),
                traceparent=traceparent,
            )
            yield StagedAsk(topic, ask.key, encode(topic, ask.command), metadata)

    def _commands(self, key: str, body: Any) -> Sequence[Any]:
        if not isinstance(body, OutcomeBatch):
            return (body,)
        answered = [
            Answered(o.command_type, o.subject, o.tag, o.kind == "accepted", o.code) for o in body.outcomes
        ]
        return self._process.record(key, answered)

    def _one(
        self, number: int, key: str, meta: Metadata, command: Any, staged: Staged[State], now: int
    ) -> Outcome:
        """Seen before? Expected version? Decide. Stage what follows."""
        partition = self._partitions[number]
        entity = staged.entities.get((number, key)) or partition.get(key)
        earlier = staged.answers.get((number, key, meta.id))
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
        # An outcome without events is found nowhere else: it goes to the answers. But not "already so" in a
        # conversation: the state says that, and only while it is true (a failover may lose what made it so).
        if meta.reply_to is not None and (meta.request_hash or outcome.kind != "accepted"):
            remembered = Remembered(outcome, now)
            staged.answers[number, key, meta.id] = remembered
            staged.unrecorded.append((number, key, remembered))
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
        asks: list[StagedAsk] = []
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
            asks.extend(self.asks(key, reaction, meta.correlation_id, about.id, now, meta.traceparent))
        changed = Entity(state, version, now)
        outcome = self._outcome(meta, changed, "accepted", events=tuple(event.metadata.id for event in new))
        staged.events.extend(new)
        staged.asks.extend(asks)
        staged.entities[number, key] = changed
        if meta.request_hash:  # conversations are recognised by the state that they leave
            staged.answers[number, key, meta.id] = Remembered(outcome, now)
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
        )

    def _reply(self, meta: Metadata, outcome: Outcome, staged: Staged[State]) -> None:
        if meta.reply_to is not None:
            address = meta.reply_to
            staged.replies.setdefault((address.topic, address.partition, address.key), []).append(outcome)
            staged.correlations.setdefault(address.key, (meta.correlation_id, meta.traceparent))

    def _unavailable(self, meta: Metadata, staged: Staged[State]) -> None:
        """Nothing is decided on a stream that stopped. Another aggregate asks again; an API is told."""
        staged.counts[meta.type, "unavailable"] += 1
        if meta.reply_to is not None and meta.reply_to.partition is not None:
            reason = "the stream has stopped: an operator must decide on one of its records"
            absent = Entity(self._decider.initial, 0, 0)
            outcome = self._outcome(meta, absent, "failed", code=STREAM_FORKED, reason=reason)
            self._reply(meta, outcome, staged)

    def _park(
        self, record: Message, meta: Metadata | None, reason: str, staged: Staged[State], now: int
    ) -> None:
        headers = tuple(Header(name, value or b"") for name, value in record.headers() or ())
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        parked = ParkedCommand(
            topic, partition, offset, reason, record.key() or b"", record.value() or b"", headers, now
        )
        staged.parked.append((f"{topic}/{partition}/{offset}", parked))
        staged.counts[meta.type if meta else "unknown", "failed"] += 1
        if meta is not None:
            absent = Entity(self._decider.initial, 0, 0)
            self._reply(
                meta, self._outcome(meta, absent, "failed", code="command_failed", reason=reason), staged
            )


def _tag(meta: Metadata) -> str:
    return meta.reply_to.tag if meta.reply_to is not None else ""
