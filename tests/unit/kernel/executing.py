"""What an executor needs, without a broker: records of a topic, and a partition without entities."""

from __future__ import annotations

from typing import Any, NamedTuple

from services.kernel.model.process import Aggregate
from services.kernel.record.codec import Record
from services.kernel.record.envelope import Headers, partition_of
from services.kernel.worker.entities import Entity, LoadedEntity, Partition
from services.kernel.worker.retry_window import Window


class OneRecord(NamedTuple):
    """What a consumer returns, without a broker."""

    new: Record
    at: int = 7

    def topic(self) -> str:
        return self.new[0]

    def partition(self) -> int:
        return int(self.new[3].get("partition", partition_of(self.new[2] or "", 2)))

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None if self.new[2] is None else self.new[2].encode()

    def value(self) -> bytes:
        return self.new[1]

    def headers(self) -> Headers:
        headers: Headers = self.new[3]["headers"]
        return headers


def empty_partition(aggregate: Aggregate[Any, Any, Any]) -> Partition[Any]:
    decider = aggregate.decider
    return Partition(
        decider.initial,
        decider.forget,
        lambda _: LoadedEntity(Entity(None, 0, 0), ()),
        Window(24.0, 1000),
    )
