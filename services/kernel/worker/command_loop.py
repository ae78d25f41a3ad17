"""The command loop: consume → decide → produce, one transaction per batch.

1. take a batch of commands, as large as the load makes it;
2. execute each on staged copies, while more come: events, outcomes, outgoing commands;
3. produce everything in one transaction, with the consumed offsets;
4. commit; a clean abort drops what was staged and goes back to the batch's beginning;
5. publish the staged entities and outcomes: only now has anything happened.
"""

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Generic, NamedTuple

import structlog
from confluent_kafka import Message, TopicPartition

from contracts.kernel.records import Answer, OutcomeBatch
from contracts.topics import TOPICS
from services.kernel.log.transactions import Aborted, produce_all
from services.kernel.model.decider import Command, Event, State
from services.kernel.model.process import OutgoingCommand
from services.kernel.record.codec import MOST_MESSAGES, Record, encode
from services.kernel.record.envelope import now_micros, uuid7, write_headers
from services.kernel.worker.entities import Entity, Staged
from services.kernel.worker.execution import Executor
from services.kernel.worker.slot import Inputs, Slot
from services.kernel.worker.worker_metrics import ABORTED, WorkerMetrics

MAX_BATCH = MOST_MESSAGES  # commands; the last record of a batch may contain more
MAX_EFFECTS = 10_000  # events and commands of one transaction: an order of a thousand lines sends a thousand
IDLE_SECONDS = 0.1
# Retries do not make an outcome come sooner: each waits twice as long as the one before, up to this factor.
SLOWEST_REDRIVE = 64
LOOK_AGAIN_MICROS = 1_000_000

WINDOW_PER_COMMAND = 0.0002  # seconds that the window grows with each command of the batch before
# Windows that a batch of conversations alone may last: each transaction that it saves is time for those who
# wait at an API, and for the read models.
PATIENCE = 10

log = structlog.get_logger()


class Timer(NamedTuple):
    """An entity whose conversation is open: its version then, how long it waits, and until when (micros)."""

    version: int
    waits: int
    until: int


@dataclass
class BatchWindow:
    """A rule without a clock (ADR 14): how long a batch gathers, in seconds; `longest` bounds a window. `released`:
    the commands of the batch before, whose clients may send the next ones now."""

    longest: float
    window: float = 0.0
    released: int = 0

    def lasts(self, awaited: bool) -> float:
        return self.window if awaited else self.window * PATIENCE

    def most(self, awaited: bool, waited: int) -> int:
        """How many commands end the window: once a client waits, those that waited before the batch, and one for each
        of the batch before."""
        return min(MAX_BATCH, waited + self.released) if awaited else MAX_BATCH

    def took(self, commands: int) -> None:
        """The next window follows the load."""
        self.window, self.released = min(self.longest, commands * WINDOW_PER_COMMAND), commands


class CommandLoop(Generic[Command, State, Event]):
    """One slot's loop. `run_once` does the five steps once; the caller repeats it until the process stops."""

    def __init__(
        self,
        slot: Slot[Command, State, Event],
        inputs: Inputs,
        executor: Executor[Command, State, Event],
        metrics: WorkerMetrics,
        window_seconds: float,
        redrive_seconds: float,
        why_not: Callable[[], str] = lambda: "",
    ) -> None:
        """`why_not` returns why the loop must not commit now, or nothing."""
        self._slot, self._inputs, self._executor, self._metrics = slot, inputs, executor, metrics
        self._why_not = why_not
        self._window, self._redrive = BatchWindow(window_seconds), int(redrive_seconds * 1_000_000)
        self._name, self._topics = slot.aggregate.name, TOPICS[slot.aggregate.name]
        self._process, self._phase = slot.aggregate.process, executor.begin_batch()
        self._executed = 0
        self._timers: list[tuple[int, int, str]] = []
        self._timed: dict[tuple[int, str], Timer] = {}
        for number, key in slot.fold.open_entities:
            self._set_timer(number, key, slot.partitions[number].get(key), now_micros())

    def run_once(self) -> int:
        """The five steps; how many commands were executed. Raises `OwnershipLost`."""
        staged: Staged[State] = Staged()
        records: list[Message] = []
        self._phase = self._executor.begin_batch()
        # Recorded times never go back, whatever the clock does. Whoever waits, waits by the clock.
        recorded = max((partition.recorded_at for partition in self._slot.partitions.values()), default=0)
        self._executed = 0
        for portion in self._batch(staged):
            recorded = max(recorded, now_micros())
            records.extend(self._execute(portion, staged, recorded))
        now = now_micros()
        recorded = max(recorded, now)
        self._due(staged, now)
        if records or staged.outgoing:
            self._commit(records, staged, recorded)
        else:
            with self._slot.lock:
                self._publish(staged, now)
        self._slot.own_events.read_back()
        return self._executed

    def _execute(self, portion: list[Message], staged: Staged[State], recorded: int) -> list[Message]:
        """Execute what has room in the batch: half of it is for the inbox, and what the commands leave.

        Returns the executed records; the next batch begins with the others.
        """
        inbox = iter([record for record in portion if record.topic() == self._topics.inbox])
        commands = iter([record for record in portion if record.topic() != self._topics.inbox])
        executed: list[Message] = []
        for records, most in ((inbox, MAX_BATCH // 2), (commands, MAX_BATCH), (inbox, MAX_BATCH)):
            while self._executed < most and staged.effects < MAX_EFFECTS:
                if (record := next(records, None)) is None:
                    break
                self._executed += self._executor.execute(record, staged, recorded)
                executed.append(record)
        self._inputs.defer([*inbox, *commands])
        return executed

    def _batch(self, staged: Staged[State]) -> Iterator[list[Message]]:
        """What is there, to be executed while more comes; then what comes within a window that grows with the
        load, and is longer while no client waits for an outcome of this batch."""
        waited = self._inputs.take(MAX_BATCH, 0)
        if not (there := waited or self._inputs.take(MAX_BATCH, IDLE_SECONDS)):
            return
        opened = time.monotonic()
        yield there
        while (room := self._window.most(staged.awaited, len(waited)) - self._executed) > 0:
            if staged.effects >= MAX_EFFECTS:
                break
            left = opened + self._window.lasts(staged.awaited) - time.monotonic()
            if left <= 0:
                break
            yield self._inputs.gather(room, min(left, self._window.longest))
        self._window.took(self._executed)

    def _commit(self, records: list[Message], staged: Staged[State], recorded: int) -> None:
        offsets = {(record.topic(), record.partition()): record.offset() + 1 for record in records}
        positions = [TopicPartition(*index, offset) for index, offset in offsets.items()]
        stage = partial(produce_all, self._encode(staged, recorded))
        began = time.perf_counter()
        with self._slot.lock:
            try:
                if reason := self._why_not():
                    raise Aborted(reason)
                self._slot.transactions.run(stage, positions, self._inputs.group)
            except Aborted as error:
                log.warning("transaction_aborted", reason=str(error), commands=self._executed)
                ABORTED.labels(self._name).inc()
                self._inputs.go_back(records)
                return
            except BaseException:
                self._slot.abandon()
                raise
            self._publish(staged, now_micros())
        for (topic, number), offset in offsets.items():
            self._slot.committed[topic][number] = offset
        self._metrics.committed(staged.counts, self._executed, time.perf_counter() - began)

    def _encode(self, staged: Staged[State], recorded: int) -> list[Record]:
        """Every record of the transaction, with its id. Each event contains its number and how many there are, so that
        an incomplete copy is detected."""
        out: list[Record] = []
        transaction, count = uuid7(), len(staged.events)
        within = ("ce_transaction", transaction.encode())
        for index, event in enumerate(staged.events):
            headers = write_headers(event.metadata)
            headers.append(("ce_transaction", f"{transaction}/{index}/{count}".encode()))
            staged.written.append((event.partition, event.key, headers))
            more = {"partition": event.partition, "headers": headers}
            out.append((self._topics.events, event.value, event.key, more))
        messages = list(staged.outgoing)
        for number, key, recorded_outcome in staged.unrecorded:
            topic = self._topics.answers
            kept = Answer(recorded_outcome.outcome, recorded_outcome.recorded_at)
            value = self._executor.routing.encode(topic, kept)
            out.append((topic, value, key, {"partition": number, "headers": [within]}))
        for (topic, to_partition, to_key, auth), outcomes in staged.replies.items():
            if to_partition is None:
                messages.append(
                    self._executor.routing.reply(to_key, topic, outcomes, *staged.correlations[to_key], auth)
                )
            elif not self._slot.reaches(topic, to_partition):
                log.error("nobody_to_answer", topic=topic, partition=to_partition, commands=len(outcomes))
            else:
                value = self._executor.routing.encode(topic, OutcomeBatch(tuple(outcomes), self._slot.epoch))
                out.append((topic, value, None, {"partition": to_partition, "headers": [within]}))
        out.extend(self._executor.routing.records(messages, recorded, transaction))
        for key, parked in staged.parked:
            topic = self._topics.parked
            out.append((topic, encode(topic, parked), key, {}))
        return out

    def _publish(self, staged: Staged[State], now: int) -> None:
        partitions = self._slot.partitions
        for (number, key), entity in staged.entities.items():
            partitions[number].publish(key, entity)
            self._set_timer(number, key, entity, now)
        for written in staged.written:
            self._slot.fold.published(*written)
        for (number, key, _), recorded_outcome in staged.outcomes.items():
            partitions[number].record(key, recorded_outcome)
        for partition in partitions.values():
            partition.expire(now)
            self._metrics.rested(partition.evict_unchanged(MAX_BATCH))

    def _set_timer(
        self, number: int, key: str, entity: Entity[State], now: int, waits: int | None = None
    ) -> None:
        """Check this entity when its deadline passes, or when its pending commands have no outcome after `waits`
        micros."""
        if (number, key) in self._timed or not self._process.is_open(entity.state):
            return
        waits = self._redrive if waits is None else waits
        deadline, due = self._process.deadline(entity.state), now + waits
        if deadline is not None and now < deadline < due:
            due = deadline
        self._timed[number, key] = Timer(entity.version, waits, now + waits)
        heapq.heappush(self._timers, (due, number, key))

    def _due(self, staged: Staged[State], now: int) -> None:
        """Stage the commands of passed deadlines and the retries of pending commands, behind the outcomes that are
        already waiting, up to a limit of their own. An entity that got an outcome since then waits anew."""
        may_expire, before = cache(self._may_expire), staged.sent
        while self._timers and self._timers[0][0] <= now and staged.sent - before < MAX_BATCH:
            _, number, key = heapq.heappop(self._timers)
            timer = self._timed.pop((number, key))
            partition = self._slot.partitions[number]
            if partition.evicted(key) or key in partition.read.stopped:
                continue
            entity = staged.entities.get((number, key)) or self._slot.partitions[number].get(key)
            deadline, waits = self._process.deadline(entity.state), self._redrive
            outgoing: Sequence[OutgoingCommand] = ()
            if deadline is not None and deadline <= now and not may_expire(number):
                waits = LOOK_AGAIN_MICROS
            elif deadline is not None and deadline <= now:
                outgoing = [OutgoingCommand(uuid7(), key, self._process.expire(key, now))]
            elif entity.version == timer.version and timer.until <= now:
                outgoing = self._process.pending(entity.state)
                waits = min(2 * timer.waits, SLOWEST_REDRIVE * self._redrive)
            staged.send(self._executor.routing.outgoing(key, outgoing, key, key))
            self._set_timer(number, key, entity, now, waits)

    def _may_expire(self, number: int) -> bool:
        """While workers move to the inbox, outcomes may wait among the commands: no deadline overtakes them."""
        if self._phase != "inbox":
            return True
        return self._inputs.commands_read(number, self._slot.committed[self._inputs.topics[1]][number])
