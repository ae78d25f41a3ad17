"""Restoring a slot's partitions: snapshots, then the events and answers from the watermark.

What is already held is skipped; a gap stops the slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from confluent_kafka import Message

from contracts.kernel.records import Outcome, Remembered
from services.kernel.aggregate import Aggregate, StateCodec
from services.kernel.entities import Entity, Partition, Window
from services.kernel.envelope import Metadata, now_micros, read_headers
from services.kernel.log_reader import end_offsets, read_to_end
from services.kernel.serde import decode
from services.kernel.snapshots import SnapshotReader

State = TypeVar("State")


class VersionGap(Exception):
    """An entity's event is missing from the log: nothing may be decided on what is left."""


@dataclass
class Restored(Generic[State]):
    """The partitions by number, and the entities whose conversations may be open (partition, key)."""

    partitions: dict[int, Partition[State]] = field(default_factory=dict)
    open_entities: set[tuple[int, str]] = field(default_factory=set)


def restore(
    bootstrap: str,
    aggregate: Aggregate[Any, State, Any],
    codec: StateCodec[State],
    window: Window,
    numbers: list[int],
) -> Restored[State]:
    """Everything committed to the partitions `numbers` of the service. Call it only when they are fenced.

    Raises `VersionGap` or `NotCaughtUp`.
    """
    topics = [f"{aggregate.name}.{part}" for part in ("state", "events", "answers")]
    state_ends, event_ends, answer_ends = (end_offsets(bootstrap, topic, numbers) for topic in topics)
    reader = SnapshotReader(codec, window, now_micros())

    def new_partition() -> Partition[State]:
        decider = aggregate.decider
        return Partition(decider.initial, decider.forget, reader.thaw, window)

    restored = Restored({number: new_partition() for number in numbers})
    other_format = set()
    for record in read_to_end(bootstrap, topics[0], dict.fromkeys(numbers, 0), state_ends):
        if reader.usable(record):
            reader.take(record, restored.partitions[record.partition()])
        else:
            other_format.add(record.partition())
    for number in other_format:  # states have another shape now: fold from the first event
        restored.partitions[number] = new_partition()
        reader.drop(number)
    restored.open_entities = set(reader.open_entities)
    marks = reader.watermarks
    events = {number: marks[number].events if number in marks else 0 for number in numbers}
    for record in read_to_end(bootstrap, topics[1], events, event_ends):
        _fold(aggregate, restored, record)
    answers = {number: marks[number].answers if number in marks else 0 for number in numbers}
    for record in read_to_end(bootstrap, topics[2], answers, answer_ends):
        answer: Any = decode(record.value())
        partition, key = restored.partitions[record.partition()], record.key().decode()
        partition.get(key)
        partition.remember(key, Remembered(answer.outcome, answer.recorded_at))
    return restored


def _fold(aggregate: Aggregate[Any, State, Any], restored: Restored[State], record: Message) -> None:
    """One event: skipped where a snapshot holds it, else folded. It also answers its HTTP command."""
    meta, key, number = read_headers(record.headers()), record.key().decode(), record.partition()
    partition = restored.partitions[number]
    entity = partition.get(key)
    if meta.version <= entity.version:
        return
    if meta.version != entity.version + 1:
        at = f"{record.topic()}/{number}/{record.offset()}"
        raise VersionGap(f"{key} is at version {entity.version}, the log goes on with {meta.version} at {at}")
    state = aggregate.decider.evolve(entity.state, decode(record.value()))
    partition.put(key, Entity(state, meta.version, meta.recorded_at))
    restored.open_entities.add((number, key))
    if meta.request_hash:
        earlier = partition.answered(key, meta.causation_id) or _first_answer(meta)
        outcome = replace(
            earlier,
            version=meta.version,
            event_ids=(*earlier.event_ids, meta.id),
            status=aggregate.decider.status(state),
        )
        partition.remember(key, Remembered(outcome, meta.recorded_at))


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
