"""Detects that the log was replaced: a stored position lies outside the log's offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.kernel.log.reader import high_watermarks
from services.projection.engine.read_model import Stopped, TopicPartition


class LogReplaced(Stopped):
    """A position lies outside the log: the rows were made from another log, or the log was truncated."""

    def __init__(self, positions: str) -> None:
        super().__init__(
            f"{positions}: restore the log that the read models were made from; "
            "or, if this one is to be kept, start on an empty database, which is filled from the log"
        )


def require_positions_in_log(kafka: str, positions: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """Raises `LogReplaced` if a read model's position lies beyond the end. Blocks. Otherwise the projection would
    wait until new records reach that position."""
    ends = _ends(kafka, {partition for offsets in positions.values() for partition in offsets})
    for name, offsets in positions.items():
        for tp, position in offsets.items():
            if position > ends[tp]:
                where = f"{name} is at position {position} of {tp[0]}/{tp[1]}"
                raise LogReplaced(f"{where}, which ends at {ends[tp]}")


def log_truncated(positions: Mapping[TopicPartition, int]) -> LogReplaced:
    """Returns the error for positions before the log's first offset."""
    lost = (f"{topic}/{number}: position {offset}" for (topic, number), offset in positions.items())
    return LogReplaced(f"{', '.join(lost)} is no longer in the log")


def _ends(kafka: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns high watermarks: an open transaction delays the last stable offset, which is no loss."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in tps:
        partitions.setdefault(topic, []).append(partition)
    return {
        (topic, partition): end
        for topic, numbers in partitions.items()
        for partition, end in high_watermarks(kafka, topic, numbers).items()
    }
