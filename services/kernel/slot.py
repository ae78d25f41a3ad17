"""A slot: some partitions of one service, owned by one process. Fence → check the layout → restore → ready.

The slot's transactional ids are the only fence: whoever calls `init_transactions` last owns the
partitions, and everything is
read after that call. What a predecessor committed is in the log by then; what it did not commit never will
be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from services.kernel.aggregate import Aggregate, StateCodec
from services.kernel.control import read_control, snapshot_id, transactional_ids
from services.kernel.entities import Partition, Window
from services.kernel.log_reader import MOVING, partitions_of
from services.kernel.registry import topics_written
from services.kernel.restoring import restore
from services.kernel.snapshots import SnapshotWriter
from services.kernel.transactions import Transactions

Command = TypeVar("Command")
State = TypeVar("State")
Event = TypeVar("Event")


class LayoutChanged(Exception):
    """The service's slot layout is not the one this worker was started for."""


@dataclass(frozen=True)
class SlotConfig:
    """Which slot of which layout, and the bounds that its owner keeps."""

    bootstrap: str
    slot: int
    layout: int
    slots: int
    transaction_timeout_ms: int
    window: Window
    snapshot_seconds: float


class Slot(Generic[Command, State, Event]):
    """The owner of a slot's partitions. `open` before anything else; `close` writes a last snapshot."""

    def __init__(
        self,
        aggregate: Aggregate[Command, State, Event],
        config: SlotConfig,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.aggregate, self.config = aggregate, config
        name, slot = aggregate.name, config.slot
        self.transactions = Transactions(
            config.bootstrap, transactional_ids(name, slot), config.transaction_timeout_ms
        )
        self._snapshot_transactions = Transactions(
            config.bootstrap, [snapshot_id(name, slot)], config.transaction_timeout_ms
        )
        self._codec: StateCodec[State] = StateCodec(aggregate.states)
        self._failed = failed
        self.partitions: dict[int, Partition[State]] = {}
        self.open_entities: set[tuple[int, str]] = set()
        self.quiet = threading.Lock()
        self.epoch = 0
        self.restore_seconds = 0.0

    def open(self) -> Consumer:
        """Own the slot; the consumer of its commands, assigned where the last owner's last commit ended.

        Raises `OwnershipLost`, `LayoutChanged`, `VersionGap` or `NotCaughtUp`: the process ends, its
        supervisor starts anew.
        """
        began = time.monotonic()
        self.transactions.fence()
        self._snapshot_transactions.fence()
        self._check_layout()
        numbers = self._numbers()
        consumer = self._consumer()
        self._settle(consumer, numbers)
        committed = self._committed(consumer, numbers)
        restored = restore(self.config.bootstrap, self.aggregate, self._codec, self.config.window, numbers)
        self.partitions.update(restored.partitions)
        self.open_entities = restored.open_entities
        consumer.assign(
            [
                TopicPartition(at.topic, at.partition, at.offset if at.offset >= 0 else OFFSET_BEGINNING)
                for at in committed
            ]
        )
        self.restore_seconds = time.monotonic() - began
        self._snapshots = SnapshotWriter(
            self.config.bootstrap,
            self.aggregate.name,
            self.partitions,
            self._codec,
            self.aggregate.process.is_open,
            self._snapshot_transactions,
            self.quiet,
            self._failed,
        )
        self._snapshots.start(self.config.snapshot_seconds)
        return consumer

    def close(self) -> None:
        self._snapshots.stop()

    def snapshot(self) -> int:
        """Write what changed now; how many entities."""
        return self._snapshots.write()

    def _check_layout(self) -> None:
        control = read_control(self.config.bootstrap)
        latest = control.layout(self.aggregate.name)
        if (latest.number, latest.slots) != (self.config.layout, self.config.slots):
            raise LayoutChanged(
                f"{self.aggregate.name} is in layout {latest.number} with {latest.slots} slots; "
                f"this worker was started for layout {self.config.layout} with {self.config.slots}"
            )
        self.epoch = control.role.epoch

    def _numbers(self) -> list[int]:
        every = partitions_of(self.config.bootstrap, f"{self.aggregate.name}.commands")
        return [number for number in every if number % self.config.slots == self.config.slot]

    def _settle(self, consumer: Consumer, numbers: list[int]) -> None:
        """Nothing of the predecessor stays undecided, wherever it wrote: see `Transactions.settle`."""
        bootstrap, name = self.config.bootstrap, self.aggregate.name
        topics = [
            topic for topic in topics_written() if topic.startswith(name) or topic.endswith(".commands")
        ]
        places = [(topic, number) for topic in topics for number in partitions_of(bootstrap, topic)]
        offsets = [TopicPartition(f"{name}.commands", number, 0) for number in numbers]
        self.transactions.settle(places, offsets, consumer.consumer_group_metadata())
        snapshots = [place for place in places if place[0] == f"{name}.state"]
        self._snapshot_transactions.settle(snapshots, [], None)

    def _committed(self, consumer: Consumer, numbers: list[int]) -> list[TopicPartition]:
        """Where the last owner's last commit ended: answered only when its pending offsets are decided."""
        commands = [TopicPartition(f"{self.aggregate.name}.commands", number) for number in numbers]
        until = time.monotonic() + 60
        while True:
            try:
                committed: list[TopicPartition] = consumer.committed(commands, 60)
                return committed
            except KafkaException as error:  # a broker that has just started moves its coordinators
                if error.args[0].code() not in MOVING or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.config.bootstrap,
                "group.id": f"{self.aggregate.name}-workers",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "fetch.min.bytes": 1,
                "queued.min.messages": 20_000,
                "queued.max.messages.kbytes": 65_536,
                "socket.nagle.disable": True,
                "check.crcs": False,
                "log_level": 3,
            }
        )
