"""The command loop: consume → decide → produce, one transaction per batch.

1. take a batch of commands, as large as the load makes it;
2. execute each on staged copies, while more come: events, outcomes, asks;
3. produce everything in one transaction, with the consumed offsets;
4. commit; a clean abort drops what was staged and goes back to the batch's beginning;
5. publish the staged entities and answers: only now has anything happened.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import structlog
from confluent_kafka import Message, Producer, TopicPartition

from contracts.kernel.records import Answer, OutcomeBatch
from contracts.topics import TOPICS
from services.kernel.log.transactions import Aborted, produce
from services.kernel.model.process import Ask
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, uuid7, write_headers
from services.kernel.worker.entity import Entity
from services.kernel.worker.execution import Executor
from services.kernel.worker.inputs import Inputs
from services.kernel.worker.slot import Slot
from services.kernel.worker.staged import Gathering, Staged
from services.kernel.worker.worker_metrics import WorkerMetrics

Command = TypeVar("Command")
State = TypeVar("State")
Event = TypeVar("Event")

MAX_BATCH = 500
MAX_RECORDS = 10_000  # events and asks of one transaction: an order of a thousand lines asks a thousand times
IDLE_SECONDS = 0.1
# Asking again and again does not make an answer come sooner: each time half as often, down to this.
SLOWEST_REDRIVE = 64
LOOK_AGAIN_MICROS = 1_000_000

Record: TypeAlias = tuple[str, bytes, str | None, dict[str, Any]]
"""Topic, value, key, and what else `produce` takes."""

log = structlog.get_logger()


class Timer(NamedTuple):
    """An entity whose conversation is open: its version then, how long it waits, and until when (micros)."""

    version: int
    waits: int
    until: int


class CommandLoop(Generic[Command, State, Event]):
    """One slot's loop. `turn` does the five steps once; the caller repeats it until it is told to stop."""

    def __init__(
        self,
        slot: Slot[Command, State, Event],
        inputs: Inputs,
        executor: Executor[Command, State, Event],
        metrics: WorkerMetrics,
        window_seconds: float,
        redrive_seconds: float,
    ) -> None:
        self._slot, self._inputs, self._executor, self._metrics = slot, inputs, executor, metrics
        self._gathering, self._redrive = Gathering(window_seconds), int(redrive_seconds * 1_000_000)
        self._name, self._topics = slot.aggregate.name, TOPICS[slot.aggregate.name]
        self._process = slot.aggregate.process
        self._timers: list[tuple[int, int, str]] = []
        self._timed: dict[tuple[int, str], Timer] = {}
        for number, key in slot.fold.open_entities:
            self._set_timer(number, key, slot.partitions[number].get(key), now_micros())

    def turn(self) -> int:
        """The five steps; how many commands were executed. Raises `OwnershipLost`."""
        staged: Staged[State] = Staged()
        records: list[Message] = []
        # Recorded times never go back, whatever the clock does. Whoever waits, waits by the clock.
        recorded = max((partition.recorded_at for partition in self._slot.partitions.values()), default=0)
        for portion in self._batch(staged):
            recorded = max(recorded, now_micros())
            for place, record in enumerate(portion):
                if staged.records >= MAX_RECORDS:
                    self._inputs.go_back(portion[place:])
                    break
                self._executor.execute(record, staged, recorded)
                records.append(record)
        now = now_micros()
        recorded = max(recorded, now)
        self._due(staged, now, recorded)
        if records or staged.asks:
            self._commit(records, staged, recorded)
        else:
            with self._slot.quiet:
                self._publish(staged, now)
        self._slot.own_events.read_back()
        return len(records)

    def _batch(self, staged: Staged[State]) -> Iterator[list[Message]]:
        """What is there, to be executed while more comes; then what comes within a window that grows with the
        load, and is longer while nobody waits for an answer of this batch."""
        if not (there := self._inputs.take(MAX_BATCH, IDLE_SECONDS)):
            return
        opened = time.monotonic()
        yield there
        taken = len(there)
        while taken < MAX_BATCH and staged.records < MAX_RECORDS:
            left = opened + self._gathering.lasts(staged.awaited) - time.monotonic()
            if left <= 0:
                break
            late = self._inputs.gather(MAX_BATCH - taken, min(left, self._gathering.longest))
            yield late
            taken += len(late)
        self._gathering.took(taken)

    def _commit(self, records: list[Message], staged: Staged[State], recorded: int) -> None:
        offsets = {(record.topic(), record.partition()): record.offset() + 1 for record in records}
        positions = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        encoded = self._encode(staged, recorded)

        def stage(producer: Producer) -> None:
            for topic, value, key, more in encoded:
                produce(producer, topic, value, key, **more)

        began = time.perf_counter()
        with self._slot.quiet:
            try:
                self._slot.transactions.run(stage, positions, self._inputs.group)
            except Aborted as error:
                log.warning("transaction_aborted", reason=str(error), commands=len(records))
                self._inputs.go_back(records)
                return
            self._publish(staged, now_micros())
        for (topic, number), offset in offsets.items():
            self._slot.committed[topic][number] = offset
        self._metrics.committed(staged.counts, len(records), time.perf_counter() - began)

    def _encode(self, staged: Staged[State], recorded: int) -> list[Record]:
        """Every record of the transaction, with its id. Events say which of how many they are, so that a torn
        copy can be told."""
        out: list[Record] = []
        transaction, count = uuid7(), len(staged.events)
        within = ("ce_transaction", transaction.encode())
        for index, event in enumerate(staged.events):
            headers = write_headers(event.metadata)
            headers.append(("ce_transaction", f"{transaction}/{index}/{count}".encode()))
            staged.written.append((event.partition, event.key, headers))
            out.append(
                (
                    self._topics.events,
                    event.value,
                    event.key,
                    {"partition": event.partition, "headers": headers},
                )
            )
        for ask in staged.asks:
            out.append((ask.topic, ask.value, ask.key, {"headers": [*write_headers(ask.metadata), within]}))
        for number, key, remembered in staged.unrecorded:
            topic = self._topics.answers
            value = encode(topic, Answer(remembered.outcome, remembered.recorded_at))
            out.append((topic, value, key, {"partition": number, "headers": [within]}))
        for (topic, to_partition, to_key), outcomes in staged.replies.items():
            value = encode(topic, OutcomeBatch(tuple(outcomes)))
            if to_partition is not None and not self._slot.reaches(topic, to_partition):
                log.error("nobody_to_answer", topic=topic, partition=to_partition, commands=len(outcomes))
            elif to_partition is not None:
                out.append((topic, value, None, {"partition": to_partition, "headers": [within]}))
            else:
                headers = write_headers(self._batch_metadata(to_key, staged, recorded))
                out.append((topic, value, to_key, {"headers": [*headers, within]}))
        for key, parked in staged.parked:
            topic = self._topics.parked
            out.append((topic, encode(topic, parked), key, {}))
        return out

    def _batch_metadata(self, key: str, staged: Staged[State], recorded: int) -> Metadata:
        batch, (correlation_id, traceparent) = uuid7(), staged.correlations[key]
        return Metadata(
            id=batch,
            type=OutcomeBatch.TYPE,
            subject=key,
            source=f"daybook/{self._name}",
            recorded_at=recorded,
            correlation_id=correlation_id,
            causation_id=batch,
            epoch=self._slot.epoch,
            traceparent=traceparent,
        )

    def _publish(self, staged: Staged[State], now: int) -> None:
        partitions = self._slot.partitions
        for (number, key), entity in staged.entities.items():
            partitions[number].publish(key, entity)
            self._set_timer(number, key, entity, now)
        for written in staged.written:
            self._slot.fold.published(*written)
        for (number, key, _), remembered in staged.answers.items():
            partitions[number].record(key, remembered)
        for partition in partitions.values():
            partition.expire(now)
            self._metrics.rested(partition.evict_unchanged(MAX_BATCH))

    def _set_timer(
        self, number: int, key: str, entity: Entity[State], now: int, waits: int | None = None
    ) -> None:
        """Look at this entity's conversation when its deadline passes, or when its asks stayed unanswered for
        `waits` micros."""
        if (number, key) in self._timed or not self._process.is_open(entity.state):
            return
        waits = self._redrive if waits is None else waits
        deadline, due = self._process.deadline(entity.state), now + waits
        if deadline is not None and now < deadline < due:
            due = deadline
        self._timed[number, key] = Timer(entity.version, waits, now + waits)
        heapq.heappush(self._timers, (due, number, key))

    def _due(self, staged: Staged[State], now: int, recorded: int) -> None:
        """Stage what passed deadlines and unanswered asks call for, behind the outcomes that are already
        waiting. Whoever got an answer since then waits anew."""
        may_expire = cache(self._may_expire)
        while self._timers and self._timers[0][0] <= now and len(staged.asks) < MAX_BATCH:
            _, number, key = heapq.heappop(self._timers)
            timer = self._timed.pop((number, key))
            partition = self._slot.partitions[number]
            if partition.evicted(key) or key in partition.read.stopped:
                continue
            entity = staged.entities.get((number, key)) or self._slot.partitions[number].get(key)
            deadline, waits = self._process.deadline(entity.state), self._redrive
            asks: Sequence[Ask] = ()
            if deadline is not None and deadline <= now and not may_expire(number):
                waits = LOOK_AGAIN_MICROS
            elif deadline is not None and deadline <= now:
                asks = [Ask(uuid7(), key, self._process.expire(key, now))]
            elif entity.version == timer.version and timer.until <= now:
                asks = self._process.pending(entity.state)
                waits = min(2 * timer.waits, SLOWEST_REDRIVE * self._redrive)
            staged.asks.extend(self._executor.asks(key, asks, key, key, recorded))
            self._set_timer(number, key, entity, now, waits)

    def _may_expire(self, number: int) -> bool:
        """While workers move to the inbox, outcomes may wait among the commands: no deadline overtakes them."""
        if self._executor.phase() != "inbox":
            return True
        return self._inputs.commands_read(number, self._slot.committed[self._inputs.topics[1]][number])
