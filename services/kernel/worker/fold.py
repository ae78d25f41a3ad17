"""Folding the log into a slot's partitions: events and recorded outcomes, by the rule for records (`rule.py`).

The same fold restores a slot, keeps a standby warm, and reads an owner's own events back behind its commits.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic

import structlog
from confluent_kafka import Message

from contracts.kernel.records import EpochOpened, Outcome, RecordJudged, Remembered
from contracts.topics import SERVICE_OF, TOPICS
from services.kernel.log.control import JOURNAL, with_judgement
from services.kernel.log.reader import events_follower, high_watermarks, read_to_end
from services.kernel.log.rule import (
    OPENING_KEY,
    Event,
    Foreign,
    Journal,
    Kind,
    Step,
    answer_of,
    epoch_after,
    foreign,
    identity,
    kind_of_message,
    place_of,
    step,
)
from services.kernel.log.transactions import Transactions, produce_all
from services.kernel.model.decider import State
from services.kernel.model.process import Aggregate
from services.kernel.record.codec import Record, decode, encode, sound
from services.kernel.record.envelope import SYSTEM, Headers, Metadata, now_micros, uuid7, write_headers
from services.kernel.worker.entities import Entity, Partition
from services.kernel.worker.snapshots import StateCodec, seen, snapshot_of

IN_HAND = 2_000  # entities that a restore has touched and not evicted yet
log = structlog.get_logger()
MOST = 5_000  # events that are read back after one batch


class Fold(Generic[State]):
    """The partitions by number, the entities whose conversations are open (partition, key), and how far the
    log is folded: `positions` holds the next offset of each topic and partition.

    `whole_from`: before this offset of a partition only the keys in `again` are folded. An `owner` applies no
    event that it did not write: such a key stops, and `suspects` names the record.
    """

    def __init__(
        self,
        aggregate: Aggregate[Any, State, Any],
        codec: StateCodec[State],
        partitions: dict[int, Partition[State]],
        partition_count: int,
        open_entities: set[tuple[int, str]],
        positions: dict[str, dict[int, int]],
        journal: Journal,
    ) -> None:
        self._decider, self._process = aggregate.decider, aggregate.process
        self._events, self._state = TOPICS[aggregate.name].events, TOPICS[aggregate.name].state
        self._codec, self._count = codec, partition_count
        self._published: dict[int, deque[tuple[str, Headers]]] = {number: deque() for number in partitions}
        self.partitions, self.open_entities, self.positions = partitions, open_entities, positions
        self.journal, self.owner = journal, False
        self.suspects: list[RecordJudged] = []
        self.whole_from: dict[int, int] = {}
        self.again: frozenset[str] = frozenset()

    def take(self, record: Message) -> None:
        """One record of the events or the recorded outcomes. Never raises for what it contains."""
        number = record.partition()
        if record.topic() == self._events:
            self._event(record, self.partitions[number])
            self.partitions[number].read.position = record.offset() + 1
        else:
            self._answer(record, self.partitions[number])
        self.positions[record.topic()][number] = record.offset() + 1

    def to_the_end(self, bootstrap: str) -> None:
        """Fold everything that is committed now. Raises `NotCaughtUp`."""
        for topic, at in self.positions.items():
            ends = high_watermarks(bootstrap, topic, list(at))
            earlier, recent = set[tuple[int, str]](), set[tuple[int, str]]()
            for record in read_to_end(bootstrap, topic, dict(at), ends):
                self.take(record)
                recent.add((record.partition(), (record.key() or b"").decode(errors="replace")))
                if len(recent) == IN_HAND:
                    self._rest(earlier - recent)
                    earlier, recent = recent, set()
            self.positions[topic] = {number: max(at[number], ends[number]) for number in at}
        for number, partition in self.partitions.items():
            partition.read.position = self.positions[self._events][number]

    def published(self, number: int, key: str, headers: Headers) -> None:
        """The owner has committed this event; it will be read back."""
        self._published[number].append((key, headers))

    def applied(self, record: Message) -> bool:
        """Whether this record of the events, which the fold has passed, is an event of a stream that goes on.

        Which epoch was open there is no longer known: an event of a closed one is let through.
        """
        claimed = dict(record.headers() or ()).get("ce_epoch", b"")
        kind = self._kind(record, int(claimed) if claimed.isdigit() else 0)
        partition = self.partitions[record.partition()]
        if not isinstance(kind, Event) or kind.metadata.epoch > partition.read.epoch:
            return False
        key = kind.metadata.subject
        return key not in partition.read.stopped and kind.metadata.version <= partition.get(key).version

    def _rest(self, entities: Iterable[tuple[int, str]]) -> None:
        """A log of entities takes far more memory than their snapshots, and leaves it scattered."""
        for number, key in entities:
            partition = self.partitions[number]
            if partition.get(key).version and (number, key) not in self.open_entities:
                partition.evict(key, snapshot_of(self._state, self._codec, seen(partition, key)))

    def _event(self, record: Message, partition: Partition[State]) -> None:
        number, headers = record.partition(), record.headers()
        if (published := self._published[number]) and published[0][1] == headers:
            partition.read.was_read(published.popleft()[0])
            return
        kind = self._kind(record, partition.read.epoch)
        partition.read.epoch = epoch_after(kind, partition.read.epoch)
        match kind:
            case Foreign(reason=reason):
                if record.offset() >= self.whole_from.get(number, 0):
                    foreign(record, reason)
            case Event():
                self._of_stream(record, partition, kind)

    def _kind(self, record: Message, epoch: int) -> Kind:
        return kind_of_message(record, self._count, epoch, self.journal)

    def _of_stream(self, record: Message, partition: Partition[State], event: Event) -> None:
        key, read, offset = event.metadata.subject, partition.read, record.offset()
        if key in read.stopped or (
            offset < self.whole_from.get(record.partition(), 0) and key not in self.again
        ):
            return
        entity = partition.get(key)
        if offset < read.skipped_to.get(key, 0):
            return
        unread = read.unread(key)
        match step(entity.version - unread, event):
            case Step.APPLIED:
                return
            case Step.NEXT if self.owner and not unread:
                self._suspect(record, partition, event.metadata)
            case Step.NEXT if unread and not self.owner:  # a snapshot that is ahead of the log has it
                read.was_read(key)
            case Step.NEXT if not unread:
                self._apply(record, partition, entity, event.metadata)
            case _:  # an owner's own events were found before: another record is in their place
                self._stop(record, partition, event.metadata, "stream_forked")

    def _apply(
        self, record: Message, partition: Partition[State], entity: Entity[State], meta: Metadata
    ) -> None:
        """Fold the next event. It is also the outcome of its HTTP command."""
        key, number = meta.subject, record.partition()
        try:
            state = self._decider.evolve(entity.state, decode(record.value()))
        except Exception as error:  # never passed: newer code may read it, or an operator decides
            self._stop(record, partition, meta, f"unreadable: {type(error).__name__}: {error}"[:300])
            return
        partition.put(key, Entity(state, meta.version, meta.recorded_at))
        if self._process.is_open(state):
            self.open_entities.add((number, key))
        else:
            self.open_entities.discard((number, key))
        if meta.request_hash and meta.recorded_at >= partition.outcomes.horizon:
            earlier = partition.outcomes.outcome(key, meta.causation_id) or _first_answer(meta)
            outcome = replace(
                earlier,
                version=meta.version,
                event_ids=(*earlier.event_ids, meta.id),
                status=self._decider.status(state),
                epoch=meta.epoch,
            )
            partition.record(key, Remembered(outcome, meta.recorded_at))

    def _suspect(self, record: Message, partition: Partition[State], meta: Metadata) -> None:
        """The next version of a stream that this process owns, and did not write."""
        reason = "not written by the stream's owner"
        about = identity(self._events, meta, record.value())
        judged = RecordJudged(*about, "suspect", reason, now_micros())
        self.suspects.append(judged)
        self.journal = with_judgement(self.journal, judged)
        self._stop(record, partition, meta, reason)

    def _stop(self, record: Message, partition: Partition[State], meta: Metadata, reason: str) -> None:
        partition.stop(meta.subject)
        self.open_entities.discard((record.partition(), meta.subject))
        log.error(
            "stream_stopped",
            stream=identity(self._events, meta, record.value()).stream,
            version=meta.version,
            event_id=meta.id,
            position=place_of(record),
            reason=reason,
            next="`daybook streams list`",
        )

    def _answer(self, record: Message, partition: Partition[State]) -> None:
        recorded = answer_of(record)
        if recorded is None:
            foreign(record, "no_answer")
        elif recorded.recorded_at >= partition.outcomes.horizon:  # else it may have been decided again
            key = recorded.outcome.subject
            partition.get(key)
            partition.record(key, Remembered(recorded.outcome, recorded.recorded_at))


def _first_answer(meta: Metadata) -> Outcome:
    """The outcome of the command that caused an event; its events, version and status are still to come."""
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


class OwnEvents:
    """One slot's events. `fold` was folded to the end after the predecessor was fenced."""

    def __init__(
        self, bootstrap: str, topic: str, fold: Fold[Any], transactions: Transactions, lock: threading.Lock
    ) -> None:
        self._fold, self._transactions, self._lock = fold, transactions, lock
        self._consumer = events_follower(bootstrap, {topic: fold.positions[topic]})
        fold.owner = True

    def read_back(self) -> None:
        """Read what came, and record in the journal what somebody else wrote.

        Raises `OwnershipLost`, `Aborted` or KafkaException.
        """
        with self._lock:
            for record in sound(self._consumer.consume(MOST, 0)):
                self._fold.take(record)
        if suspects := self._fold.suspects:
            records: list[Record] = [
                (JOURNAL, encode(JOURNAL, judged), judged.stream, {}) for judged in suspects
            ]
            self._transactions.run_again(partial(produce_all, records))
            suspects.clear()


def open_epoch(
    transactions: Transactions, topic: str, partitions: Sequence[int], epoch: int, site: str
) -> None:
    """Write the first record of an epoch into these partitions, all or none: before any event of the epoch.

    Raises `OwnershipLost` or `Aborted`.
    """
    now, opening = now_micros(), uuid7()
    value = encode(topic, EpochOpened(epoch, site, now))
    about = Metadata(
        id=opening,
        type=EpochOpened.TYPE,
        subject=OPENING_KEY,
        source=f"daybook/{SERVICE_OF[topic]}",
        recorded_at=now,
        correlation_id=opening,
        causation_id=opening,
        epoch=epoch,
        auth=SYSTEM,
    )
    headers = write_headers(about)
    records: list[Record] = [
        (topic, value, OPENING_KEY, {"partition": number, "headers": headers}) for number in partitions
    ]
    transactions.run_again(partial(produce_all, records))
