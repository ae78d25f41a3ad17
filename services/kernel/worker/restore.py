"""Restoring after a restart: snapshots, then events and recorded outcomes from the watermark on (`fold.py`).

A key that had stopped, or about which something was decided since its snapshot, is folded anew from its first
event: a decision or newer code may let it go on.
"""

from typing import Any

from contracts.topics import TOPICS
from services.kernel import KernelError
from services.kernel.log.reader import high_watermarks, read_to_end
from services.kernel.log.rule import FIRST_EPOCH, Journal, foreign, stream_of
from services.kernel.model.decider import State
from services.kernel.model.process import Aggregate
from services.kernel.record.envelope import now_micros, partition_of
from services.kernel.worker.entities import Partition
from services.kernel.worker.fold import Fold
from services.kernel.worker.retry_window import Window
from services.kernel.worker.snapshots import SnapshotReader, StateCodec


class VersionGap(KernelError):
    """The log lacks events that a snapshot has: nothing may be decided on what is left."""


def restore(
    bootstrap: str,
    aggregate: Aggregate[Any, State, Any],
    codec: StateCodec[State],
    window: Window,
    numbers: list[int],
    partition_count: int,
    journal: Journal,
) -> Fold[State]:
    """Everything committed to the partitions `numbers` of the service. An owner has fenced them before.

    Raises `VersionGap` or `NotCaughtUp`.
    """
    events, answers = TOPICS[aggregate.name].events, TOPICS[aggregate.name].answers
    reader, partitions = _snapshots(bootstrap, aggregate, codec, window, numbers)
    marks = reader.watermarks
    ends = high_watermarks(bootstrap, events, numbers)
    for number, mark in marks.items():
        if mark.events > ends[number]:
            raise VersionGap(f"{events}/{number} ends at {ends[number]}, its snapshots at {mark.events}")
        partitions[number].read.epoch = mark.epoch
    stopped = {key for _, key in reader.stopped}
    decided = _decided(journal, events, min((mark.judged for mark in marks.values()), default=0))
    again = {(partition_of(key, partition_count), key) for key in stopped | decided}
    positions = {
        events: {number: marks[number].events if number in marks else 0 for number in numbers},
        answers: {number: marks[number].answers if number in marks else 0 for number in numbers},
    }
    open_entities = reader.open_entities - again
    fold = Fold(aggregate, codec, partitions, partition_count, open_entities, positions, journal)
    for number, key in again:
        if number in partitions:
            partitions[number].begin_anew(key)
        if number in marks:
            partitions[number].read.epoch = FIRST_EPOCH
            fold.whole_from[number] = marks[number].events
            positions[events][number] = 0
    fold.again = frozenset(key for _, key in again)
    fold.to_the_end(bootstrap)
    for partition in partitions.values():
        if (ahead := partition.read.end_restoring()) is not None:
            raise VersionGap(f"{ahead}: its snapshot holds events that {events} does not")
    return fold


def _snapshots(
    bootstrap: str,
    aggregate: Aggregate[Any, State, Any],
    codec: StateCodec[State],
    window: Window,
    numbers: list[int],
) -> tuple[SnapshotReader[State], dict[int, Partition[State]]]:
    """What the state topic holds; nothing of a partition that has snapshots of another format."""
    reader, now = SnapshotReader(codec), now_micros()

    def new_partition() -> Partition[State]:
        decider = aggregate.decider
        partition = Partition(decider.initial, decider.forget, reader.load, window)
        partition.read.restoring = True
        partition.expire(now)  # what has left the window is not loaded
        return partition

    partitions = {number: new_partition() for number in numbers}
    other_format = set()
    for record in read_to_end(bootstrap, TOPICS[aggregate.name].state, dict.fromkeys(numbers, 0)):
        if not reader.is_ours(record):
            foreign(record, "no_snapshot")
        elif reader.usable(record):
            reader.take(record, partitions[record.partition()])
        else:
            other_format.add(record.partition())
    for number in other_format:  # states have another shape now: fold from the first event
        partitions[number] = new_partition()
        reader.drop(number)
    return reader, partitions


def _decided(journal: Journal, events: str, honoured: int) -> set[str]:
    """The keys about which something was decided behind the first `honoured` decisions."""
    prefix = stream_of(events, "")
    return {
        stream.removeprefix(prefix)
        for stream, number in journal.streams.items()
        if number > honoured and stream.startswith(prefix)
    }
