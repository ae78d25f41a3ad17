"""Is the log the one that the rows were made from? A position outside it says no."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.kernel.log.reader import end_offsets
from services.projection.engine.read_model import Stopped, TopicPartition


class AnotherLog(Stopped):
    """A position lies outside the log: it is not, or no longer, the log that the rows were made from."""

    def __init__(self, places: str) -> None:
        super().__init__(
            f"{places}: restore the log that the read models were made from; "
            "or, if this one is to be kept, start on an empty database, which is filled from the log"
        )


def require_within_the_log(kafka: str, positions: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """Raises `AnotherLog` where a read model's position lies beyond the end. Blocks.

    What is beyond the end would be waited for until others have written there.
    """
    ends = _ends(kafka, {place for at in positions.values() for place in at})
    for name, at in positions.items():
        for place, position in at.items():
            if position > ends[place]:
                where = f"{name} is at position {position} of {place[0]}/{place[1]}"
                raise AnotherLog(f"{where}, which ends at {ends[place]}")


def no_longer_there(positions: Mapping[TopicPartition, int]) -> AnotherLog:
    """The log begins behind these positions."""
    places = (f"{topic}/{number}: position {at}" for (topic, number), at in positions.items())
    return AnotherLog(f"{', '.join(places)} is no longer in the log")


def _ends(kafka: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """High watermarks: an open transaction holds the last stable offset back, and is no loss."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in places:
        partitions.setdefault(topic, []).append(partition)
    return {
        (topic, partition): end
        for topic, some in partitions.items()
        for partition, end in end_offsets(kafka, topic, some).items()
    }
