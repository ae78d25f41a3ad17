"""A slot: some partitions of one service, owned by one process. Fence → check the layout → restore → ready.

On a passive site it is a standby: it restores, folds on and writes nothing until the site becomes active.

The slot's transactional ids are the only fence: whoever calls `init_transactions` last owns the partitions,
and everything is read after that call. What a predecessor committed is in the log by then; what it did not
commit never will be.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic

import structlog
from confluent_kafka import Consumer, Message, TopicPartition

from contracts.topics import INPUTS, TOPICS
from services.kernel import KernelError
from services.kernel.log.completion import Unsettled, settle, slot_partitions
from services.kernel.log.control import (
    Control,
    Phase,
    read_control,
    read_journal,
    snapshot_id,
    transactional_ids,
)
from services.kernel.log.reader import (
    LogTail,
    NotKnown,
    Positions,
    commands_consumer,
    high_watermarks,
    once_settled,
    partitions_by_topic,
)
from services.kernel.log.transactions import Transactions
from services.kernel.model.decider import Command, Event, State
from services.kernel.model.process import Aggregate
from services.kernel.record.codec import sound
from services.kernel.record.envelope import now_micros
from services.kernel.worker.entities import Partition
from services.kernel.worker.fold import Fold, OwnEvents, open_epoch
from services.kernel.worker.restore import restore
from services.kernel.worker.retry_window import Window
from services.kernel.worker.snapshots import Ends, SnapshotWriter, StateCodec

PAUSE_SECONDS = 0.005  # how long a record of the inbox may wait while nothing else comes
COMMITTED_SECONDS = 60
TAIL_SECONDS = 2.0
log = structlog.get_logger()


class Inputs:
    """`begin` once, then `take` again and again; `defer` what a batch has no room for, `go_back` after an abort."""

    def __init__(self, bootstrap: str, service: str) -> None:
        self.topics, group = TOPICS[service].inputs, f"{service}-workers"
        self._bootstrap, self._tail = bootstrap, LogTail(bootstrap)
        self._waiting: dict[int, int] = {}
        self._deferred: dict[str, list[Message]] = {topic: [] for topic in self.topics}
        self._inbox, self._commands = (commands_consumer(bootstrap, group) for _ in self.topics)
        self._consumers: Mapping[str, Consumer] = dict(
            zip(self.topics, (self._inbox, self._commands), strict=True)
        )

    @property
    def group(self) -> Any:
        """The consumer group, as a transaction wants it."""
        return self._commands.consumer_group_metadata()

    def committed(self, numbers: Collection[int]) -> dict[str, dict[int, int]]:
        """Where the last owner's last commit ended, below zero where nobody has committed yet.

        Returns only when pending offsets are decided.
        """
        partitions = [TopicPartition(topic, number) for topic in self.topics for number in numbers]
        offsets: dict[str, dict[int, int]] = {topic: {} for topic in self.topics}
        for at in once_settled(
            lambda: self._commands.committed(partitions, COMMITTED_SECONDS), COMMITTED_SECONDS
        ):
            offsets[at.topic][at.partition] = at.offset
        return offsets

    def begin(
        self, committed: Mapping[str, dict[int, int]], transactions: Transactions
    ) -> dict[str, dict[int, int]]:
        """Go on where the last owner's commit ended; returns these positions: the next offset by topic and partition.

        A partition of which nothing was committed gets its first commit now: it records that the partition's
        owner reads this input. One that has lost its end, in a crash of its machine, goes on at the new end: read from
        the first record, it would have commands executed again. Raises `OwnershipLost` or `Aborted`.
        """
        begin: dict[str, dict[int, int]] = {}
        for topic, own in committed.items():
            ends = high_watermarks(self._bootstrap, topic, list(own))
            begin[topic] = {number: max(0, min(offset, ends[number])) for number, offset in own.items()}
        changed = [
            TopicPartition(topic, number, offset)
            for topic, own in begin.items()
            for number, offset in own.items()
            if offset != committed[topic][number]
        ]
        if lost := [at for at in changed if at.offset < committed[at.topic][at.partition]]:
            log.error("input_lost_its_end", begins=[f"{at.topic}/{at.partition}/{at.offset}" for at in lost])
        if changed:
            transactions.run_again(lambda _: None, changed, self.group)
        for topic, own in begin.items():
            self._consumers[topic].assign([TopicPartition(topic, *at) for at in own.items()])
        return begin

    def take(self, most: int, seconds: float) -> list[Message]:
        """What is there, the inbox first; waits up to `seconds` for the first record.

        Each input has half of `most`, and what the other leaves of its half. Raises KafkaException.
        """
        until = time.monotonic() + seconds
        while not (records := self._there(most, [])):
            left = until - time.monotonic()
            if left <= 0:
                return []
            if first := self._commands.consume(1, min(left, PAUSE_SECONDS)):
                return self._there(most, first)
        return records

    def gather(self, most: int, seconds: float) -> list[Message]:
        """What comes within `seconds`, or the first `most` records of it. Raises KafkaException."""
        late: list[Message] = self._commands.consume(most, seconds)
        return sound([*self._inbox.consume(most - len(late), 0), *late] if len(late) < most else late)

    def defer(self, records: Iterable[Message]) -> None:
        """A batch has no room for these: the next `take` returns them instead of others of their input."""
        for record in records:
            self._deferred[record.topic()].append(record)

    def go_back(self, records: Iterable[Message]) -> None:
        """Read these again, and what is held: from the first of each partition on."""
        first: dict[tuple[str, int], int] = {}
        for record in (*records, *chain(*self._deferred.values())):
            first.setdefault((record.topic(), record.partition()), record.offset())
        for (topic, number), offset in first.items():
            self._consumers[topic].seek(TopicPartition(topic, number, offset))
        for deferred in self._deferred.values():
            deferred.clear()

    def commands_read(self, number: int, executed: int) -> bool:
        """Whether the commands are executed that a partition contained at the first call.

        Once they are, the next call starts again with those that it contains then. `executed` is the next offset.
        """
        topic = self.topics[1]
        if number not in self._waiting:
            self._waiting[number] = high_watermarks(self._bootstrap, topic, [number])[number]
        position = ((topic, number), executed)
        try:  # no position reaches the end of a partition that markers close
            read = (
                executed >= self._waiting[number]
                or not self._tail.behind([position], TAIL_SECONDS)[position].records
            )
        except NotKnown:
            read = False
        if read:
            del self._waiting[number]
        return read

    def close(self) -> None:
        self._tail.close()
        for consumer in self._consumers.values():
            consumer.close()

    def _there(self, most: int, commands: list[Message]) -> list[Message]:
        """An input with deferred records has only those."""
        deferred_inbox, deferred_commands = (self._deferred[topic] for topic in self.topics)
        self._deferred = {topic: [] for topic in self.topics}
        inbox = deferred_inbox or self._inbox.consume(most // 2, 0)
        commands = commands + deferred_commands
        if not deferred_commands and (room := most - len(inbox) - len(commands)) > 0:
            commands = commands + self._commands.consume(room, 0)
        if not deferred_inbox and (room := most - len(inbox) - len(commands)) > 0:
            inbox = inbox + self._inbox.consume(room, 0)
        return sound([*inbox, *commands])


class LayoutChanged(KernelError):
    """The service's slot layout is not the one this worker was started for."""


class StoodDown(KernelError):
    """The site does not write, or not in this epoch: this process must not write once more."""


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
        self._snapshots: SnapshotWriter[State] | None = None
        self._fold: Fold[State] | None = None
        self._topics: dict[str, list[int]] = {}
        self.committed: dict[str, dict[int, int]] = {}  # the next record of each input and partition
        self.own_events: OwnEvents
        self.lock = threading.Lock()
        self.epoch = 0
        self.taking_over = False
        self.restore_seconds = 0.0

    @property
    def fold(self) -> Fold[State]:
        """The restored partitions. Raises RuntimeError before `stand_by` or `open`."""
        if self._fold is None:
            raise RuntimeError("nothing is restored yet")
        return self._fold

    @property
    def partitions(self) -> dict[int, Partition[State]]:
        return self.fold.partitions

    @property
    def counts(self) -> Mapping[str, int]:
        """How many partitions each topic has."""
        return {topic: len(numbers) for topic, numbers in self._topics.items()}

    def stand_by(self) -> None:
        """Restore what the log has and begin to write snapshots; nothing else is written.

        Raises like `open`.
        """
        began = time.monotonic()
        self._restore(self._take_snapshots(), self._folded_to)
        self.restore_seconds = time.monotonic() - began

    def open(self) -> Inputs:
        """Own the partitions: their inputs, positioned where the last owner's commit ended.

        A slot that stood by folds only what came since. Raises `OwnershipLost`, `LayoutChanged`, `StoodDown`,
        `VersionGap` or `NotCaughtUp`: the process ends, its supervisor starts anew.
        """
        began = time.monotonic()
        self.transactions.fence()
        numbers = self._take_snapshots() if self._snapshots is None else self._look_at_topics()
        control = self._check_layout()
        if not control.writing:
            raise StoodDown(f"the site is {control.role.role}, {control.held or 'not held'}")
        self.epoch, self.taking_over = control.role.epoch, control.held == "takeover"
        inputs = Inputs(self.config.bootstrap, self.aggregate.name)
        self._settle(inputs, numbers, control.phase)
        committed = inputs.committed(numbers)
        if self._snapshots is not None:
            with self.lock:
                self.fold.to_the_end(self.config.bootstrap)
            self._snapshots.ends = self._log_ends
        else:
            self._restore(numbers, self._log_ends)
        with self.lock:
            self._own(control.role.site)
        if self.taking_over:
            with self.lock:  # what the lost site had asked for is asked again, however late
                for partition in self.partitions.values():
                    partition.steps.keep(now_micros())
        self.committed = inputs.begin(committed, self.transactions)
        self.restore_seconds = time.monotonic() - began
        return inputs

    def close(self) -> None:
        if self._snapshots is not None:
            self._snapshots.stop()

    def abandon(self) -> None:
        """Write no more snapshots: the last transaction may be in the log, and its outcomes are not published."""
        if self._snapshots is not None:
            self._snapshots.abandoned = True

    def snapshot(self) -> int:
        """Write what changed now; how many entities."""
        return self._snapshots.write() if self._snapshots is not None else 0

    def _take_snapshots(self) -> list[int]:
        """Become the only one who writes the slot's snapshots; the slot's partitions."""
        self._snapshot_transactions.fence()
        self._check_layout()
        numbers = self._look_at_topics()
        self._snapshot_transactions.settle(self._places([TOPICS[self.aggregate.name].state]), [], None)
        return numbers

    def _own(self, site: str) -> None:
        """Open the epoch where it is not open yet, and follow the slot's own events."""
        fold, bootstrap, events = self.fold, self.config.bootstrap, TOPICS[self.aggregate.name].events
        epochs = {number: partition.read.epoch for number, partition in fold.partitions.items()}
        if max(epochs.values(), default=0) > self.epoch:
            raise StoodDown(f"{events} was opened in a later epoch than {self.epoch}: {epochs}")
        if unopened := [number for number, epoch in epochs.items() if epoch < self.epoch]:
            open_epoch(self.transactions, events, unopened, self.epoch, site)
            fold.to_the_end(bootstrap)
        self.own_events = OwnEvents(bootstrap, events, fold, self.transactions, self.lock)

    def _restore(self, numbers: list[int], ends: Ends) -> None:
        config, aggregate = self.config, self.aggregate
        journal = read_journal(config.bootstrap)
        about = config.window, numbers, self.counts[TOPICS[aggregate.name].commands], journal
        self._fold = restore(config.bootstrap, aggregate, self._codec, *about)
        self._snapshots = SnapshotWriter(
            aggregate.name,
            self._fold.partitions,
            self._codec,
            aggregate.process.is_open,
            self._snapshot_transactions,
            ends,
            self.lock,
            self._failed,
            journal.count,
        )
        self._snapshots.start(config.snapshot_seconds)

    def _log_ends(self, numbers: list[int]) -> Positions:
        return high_watermarks(self.config.bootstrap, TOPICS[self.aggregate.name].answers, numbers)

    def _folded_to(self, _numbers: list[int]) -> Positions:
        return dict(self.fold.positions[TOPICS[self.aggregate.name].answers])

    def _check_layout(self) -> Control:
        control = read_control(self.config.bootstrap)
        latest = control.layout(self.aggregate.name)
        if (latest.number, latest.slots) != (self.config.layout, self.config.slots):
            raise LayoutChanged(
                f"{self.aggregate.name} is in layout {latest.number} with {latest.slots} slots; "
                f"this worker was started for layout {self.config.layout} with {self.config.slots}"
            )
        return control

    def _look_at_topics(self) -> list[int]:
        """What partitions there are now; the slot's own. Raises `LayoutChanged`: see `require_inbox`."""
        self._topics = partitions_by_topic(self.config.bootstrap)
        require_inbox(self.aggregate.name, self._topics)
        every = self._topics[TOPICS[self.aggregate.name].commands]
        return slot_partitions(every, self.config.slot, self.config.slots)

    def reaches(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition; a topic may have grown since the slot was opened."""
        if partition not in self._topics.get(topic, ()):
            self._look_at_topics()
        return partition in self._topics.get(topic, ())

    def _places(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        return [(topic, number) for topic in topics for number in self._topics[topic]]

    def _settle(self, inputs: Inputs, numbers: list[int], phase: Phase) -> None:
        """Nothing of the predecessor stays undecided, wherever it wrote, or half committed."""
        closed = {own.commands for own in TOPICS.values()} if phase == "closed" else set()
        topics = sorted({*TOPICS[self.aggregate.name], *INPUTS} - closed)
        offsets = [TopicPartition(topic, number, 0) for topic in inputs.topics for number in numbers]
        written = self._places(topics)
        own = Unsettled(self.transactions, self.aggregate.name, numbers, written, offsets, inputs.group)
        settle(self.config.bootstrap, [own], self.epoch)


def require_inbox(service: str, topics: Mapping[str, Sequence[int]]) -> None:
    """Raises `LayoutChanged` where the inbox has not the partitions of the commands."""
    inbox, commands = TOPICS[service].inbox, TOPICS[service].commands
    if (have := len(topics.get(inbox, ()))) != (expected := len(topics[commands])):
        raise LayoutChanged(f"{inbox} has {have} partitions, {commands} has {expected}: `./daybook up`")
