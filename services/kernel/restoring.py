"""Folding the log into a slot's partitions: snapshots, then events and answers from the watermark on.

What is already held is skipped; a gap stops the slot. A standby goes on folding where the restore ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from confluent_kafka import Message

from contracts.kernel.records import Outcome, Remembered
from services.kernel.aggregate import Aggregate, StateCodec
from services.kernel.entities import Entity, Partition, Window
from services.kernel.envelope import Metadata, now_micros, read_headers
from services.kernel.log_reader import end_offsets, read_to_end
from services.kernel.serde import decode
from services.kernel.snapshots import SnapshotReader, snapshot_of

State = TypeVar("State")

IN_HAND = 2_000  # entities that a restore has touched and does not hold as their snapshots yet


class VersionGap(Exception):
    """An entity's event is missing from the log: nothing may be decided on what is left."""


class OlderEpoch(VersionGap):
    """An event of an older site epoch stands behind a newer one: two sites wrote this log."""


class Fold(Generic[State]):
    """The partitions by number, the entities whose conversations are open (partition, key), and how far the
    log is folded: `positions` holds the next offset of each topic and partition."""

    def __init__(
        self,
        aggregate: Aggregate[Any, State, Any],
        codec: StateCodec[State],
        partitions: dict[int, Partition[State]],
        open_entities: set[tuple[int, str]],
        positions: dict[str, dict[int, int]],
    ) -> None:
        self._decider, self._process = aggregate.decider, aggregate.process
        self._events, self._state = f"{aggregate.name}.events", f"{aggregate.name}.state"
        self._codec = codec
        self._epochs: dict[int, int] = {}
        self.partitions, self.open_entities, self.positions = partitions, open_entities, positions

    def take(self, record: Message) -> None:
        """One record of the events or the answers. Raises `VersionGap`."""
        if record.topic() == self._events:
            self._event(record)
        else:
            answer: Any = decode(record.value())
            partition, key = self.partitions[record.partition()], record.key().decode()
            partition.get(key)
            partition.remember(key, Remembered(answer.outcome, answer.recorded_at))
        self.positions[record.topic()][record.partition()] = record.offset() + 1

    def to_the_end(self, bootstrap: str) -> None:
        """Fold everything that is committed now. Raises `VersionGap` or `NotCaughtUp`."""
        for topic, at in self.positions.items():
            ends = end_offsets(bootstrap, topic, list(at))
            earlier, recent = set[tuple[int, str]](), set[tuple[int, str]]()
            for record in read_to_end(bootstrap, topic, dict(at), ends):
                self.take(record)
                recent.add((record.partition(), record.key().decode()))
                if len(recent) == IN_HAND:
                    self._rest(earlier - recent)
                    earlier, recent = recent, set()
            self.positions[topic] = {number: max(at[number], ends[number]) for number in at}

    def _rest(self, entities: Iterable[tuple[int, str]]) -> None:
        """A log of entities takes far more memory than their snapshots, and leaves it scattered."""
        for number, key in entities:
            partition = self.partitions[number]
            entity = partition.get(key)
            if entity.version and (number, key) not in self.open_entities:
                snapshot = snapshot_of(self._state, self._codec, entity, partition.answers(key))
                partition.hold(key, snapshot)

    def _event(self, record: Message) -> None:
        """Skipped where a snapshot holds it, else folded. It also answers its HTTP command."""
        meta, key, number = read_headers(record.headers()), record.key().decode(), record.partition()
        at = f"{record.topic()}/{number}/{record.offset()}"
        if meta.epoch < self._epochs.get(number, 0):
            raise OlderEpoch(f"epoch {meta.epoch} behind {self._epochs[number]} at {at}")
        self._epochs[number] = meta.epoch
        partition = self.partitions[number]
        entity = partition.get(key)
        if meta.version <= entity.version:
            return
        if meta.version != entity.version + 1:
            raise VersionGap(
                f"{key} is at version {entity.version}, the log goes on with {meta.version} at {at}"
            )
        state = self._decider.evolve(entity.state, decode(record.value()))
        partition.put(key, Entity(state, meta.version, meta.recorded_at))
        if self._process.is_open(state):
            self.open_entities.add((number, key))
        else:
            self.open_entities.discard((number, key))
        if meta.request_hash:
            earlier = partition.answered(key, meta.causation_id) or _first_answer(meta)
            outcome = replace(
                earlier,
                version=meta.version,
                event_ids=(*earlier.event_ids, meta.id),
                status=self._decider.status(state),
            )
            partition.remember(key, Remembered(outcome, meta.recorded_at))


def restore(
    bootstrap: str,
    aggregate: Aggregate[Any, State, Any],
    codec: StateCodec[State],
    window: Window,
    numbers: list[int],
) -> Fold[State]:
    """Everything committed to the partitions `numbers` of the service. An owner has fenced them before.

    Raises `VersionGap` or `NotCaughtUp`.
    """
    state, events, answers = (f"{aggregate.name}.{part}" for part in ("state", "events", "answers"))
    reader, now = SnapshotReader(codec), now_micros()

    def new_partition() -> Partition[State]:
        decider = aggregate.decider
        partition = Partition(decider.initial, decider.forget, reader.thaw, window)
        partition.expire(now)  # what has left the window is not thawed
        return partition

    partitions = {number: new_partition() for number in numbers}
    other_format = set()
    for record in read_to_end(bootstrap, state, dict.fromkeys(numbers, 0)):
        if reader.usable(record):
            reader.take(record, partitions[record.partition()])
        else:
            other_format.add(record.partition())
    for number in other_format:  # states have another shape now: fold from the first event
        partitions[number] = new_partition()
        reader.drop(number)
    marks = reader.watermarks
    positions = {
        events: {number: marks[number].events if number in marks else 0 for number in numbers},
        answers: {number: marks[number].answers if number in marks else 0 for number in numbers},
    }
    fold = Fold(aggregate, codec, partitions, set(reader.open_entities), positions)
    fold.to_the_end(bootstrap)
    return fold


def _first_answer(meta: Metadata) -> Outcome:
    """The answer to the command that caused an event; its events, version and status are still to come."""
    return Outcome(
        command_id=meta.causation_id,
        command_type="",
        subject=meta.subject,
        tag="",
        kind="accepted",
        version=0,
        event_ids=(),
        status="",
        code="",
        reason="",
        request_hash=meta.request_hash,
        replayed=False,
    )
