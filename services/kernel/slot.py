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
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from contracts.kernel.records import Outcome, Remembered
from services.kernel.aggregate import Aggregate, StateCodec
from services.kernel.control import read_control, snapshot_id, transactional_ids
from services.kernel.entities import Entity, Partition, Window
from services.kernel.envelope import now_micros, read_headers
from services.kernel.log_reader import MOVING, end_offsets, partitions_of, read_to_end
from services.kernel.registry import topics_written
from services.kernel.serde import decode
from services.kernel.snapshots import SnapshotReader, SnapshotWriter
from services.kernel.transactions import Transactions

Command = TypeVar("Command")
State = TypeVar("State")
Event = TypeVar("Event")


class LayoutChanged(Exception):
    """The service's slot layout is not the one this worker was started for."""


class VersionGap(Exception):
    """An entity's event is missing from the log: nothing may be decided on what is left."""


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
        self._restore(numbers)
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
            self._is_open,
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

    def _restore(self, numbers: list[int]) -> None:
        """Snapshots, then the events and answers from the watermark; what is already held is skipped."""
        bootstrap, name = self.config.bootstrap, self.aggregate.name
        topics = [f"{name}.state", f"{name}.events", f"{name}.answers"]
        state_ends, event_ends, answer_ends = (end_offsets(bootstrap, topic, numbers) for topic in topics)
        reader = SnapshotReader(self._codec, self.config.window, now_micros())
        self.partitions.update({number: self._new_partition(reader) for number in numbers})
        other_format = set()
        for record in read_to_end(bootstrap, topics[0], dict.fromkeys(numbers, 0), state_ends):
            if reader.usable(record):
                reader.take(record, self.partitions[record.partition()])
            else:
                other_format.add(record.partition())
        for (
            number
        ) in other_format:  # states have another shape now: this partition is folded from its first event
            self.partitions[number] = self._new_partition(reader)
            reader.drop(number)
        self.open_entities = set(reader.open_entities)
        marks = reader.watermarks
        events = {number: marks[number].events if number in marks else 0 for number in numbers}
        for record in read_to_end(bootstrap, topics[1], events, event_ends):
            self._fold(record)
        answers = {number: marks[number].answers if number in marks else 0 for number in numbers}
        for record in read_to_end(bootstrap, topics[2], answers, answer_ends):
            answer: Any = decode(record.value())
            partition = self.partitions[record.partition()]
            partition.get(record.key().decode())
            partition.remember(record.key().decode(), Remembered(answer.outcome, answer.recorded_at))

    def _new_partition(self, reader: SnapshotReader[State]) -> Partition[State]:
        decider = self.aggregate.decider
        return Partition(decider.initial, decider.forget, reader.thaw, self.config.window)

    def _fold(self, record: Message) -> None:
        meta, partition, key = (
            read_headers(record.headers()),
            self.partitions[record.partition()],
            record.key().decode(),
        )
        entity = partition.get(key)
        if meta.version <= entity.version:
            return
        if meta.version != entity.version + 1:
            at = f"{record.topic()}/{record.partition()}/{record.offset()}"
            raise VersionGap(
                f"{key} is at version {entity.version}, the log goes on with {meta.version} at {at}"
            )
        decider = self.aggregate.decider
        state = decider.evolve(entity.state, decode(record.value()))
        partition.put(key, Entity(state, meta.version, meta.recorded_at))
        self.open_entities.add((record.partition(), key))
        if meta.request_hash:
            earlier = partition.answered(key, meta.causation_id)
            outcome = earlier or Outcome(
                command_id=meta.causation_id,
                command_type="",
                subject=key,
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
            outcome = replace(
                outcome,
                version=meta.version,
                event_ids=(*outcome.event_ids, meta.id),
                status=decider.status(state),
            )
            partition.remember(key, Remembered(outcome, meta.recorded_at))

    def _is_open(self, state: State) -> bool:
        process = self.aggregate.process
        return process.deadline(state) is not None or bool(process.pending(state))
