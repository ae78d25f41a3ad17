"""What the other site's log contains: for `Durability: both-sites`, which waits for the outcome of a write, and for the
loss budget, which refuses writes while acknowledged ones are missing there for too long.

One thread follows what is committed in the service's events and answers at the other site, from the ends of the topics
on. An event is recognised by its id, an outcome without an event by its command's id: both are *marks*. Each mark is
unique, so one that arrives is the mirrored copy of ours, whatever happens to this site afterwards.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from prometheus_client import Histogram

from contracts.kernel.records import Answer, Outcome
from contracts.topics import ServiceTopics
from services.edge.gateway import Gateway
from services.edge.problems import BeyondLossBudget, PeerUnavailable
from services.edge.settings import ApiSettings
from services.kernel.log import clients
from services.kernel.record.codec import Undecodable, decode, sound, what_is_there
from services.kernel.record.envelope import partition_of

WAIT = Histogram(
    "daybook_both_sites_seconds", "From the outcome until it was on both sites, or not", ["durability"]
)
MOST_MARKS = 50_000
START_SECONDS = 2.0
BROKER_SECONDS = 5.0
AGAIN_SECONDS = 0.5
# A record is written at most so long after its id was made: a transaction ends within 10 s.
EARLIER_MS, LATER_MS = 1_000, 15_000

THIS_SITE: Literal["this-site"] = "this-site"
Durability: TypeAlias = Literal["both-sites", "this-site"]
"""Where the outcome of a write was seen, in bodies and problems."""
NOT_YET = {"durability": THIS_SITE}

Mark: TypeAlias = str
Waiter: TypeAlias = "asyncio.Future[None]"

log = structlog.get_logger(__name__)


def mark_of(outcome: Outcome) -> Mark:
    """What the other site's log contains once it contains this outcome. A command causes at most one event."""
    return outcome.event_ids[-1] if outcome.event_ids else outcome.command_id


class SeenMarks:
    """The newest marks that arrived, and who waits for one. Only the event loop may use it."""

    def __init__(self, most: int = MOST_MARKS) -> None:
        self._most = most
        self._seen: dict[Mark, None] = {}  # in the order of their arrival
        self._waiters: dict[Mark, list[Waiter]] = {}

    def __contains__(self, mark: Mark) -> bool:
        return mark in self._seen

    def add(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            self._seen[mark] = None
            for waiter in self._waiters.get(mark, ()):
                if not waiter.done():
                    waiter.set_result(None)
        while len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]

    def clear(self) -> None:
        """Forgets the marks; who waits goes on waiting."""
        self._seen.clear()

    async def wait(self, mark: Mark, seconds: float) -> bool:
        """Whether the mark has arrived or does so within `seconds`."""
        if mark in self._seen:
            return True
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(mark, []).append(waiter)
        try:
            await asyncio.wait([waiter], timeout=seconds)
            return waiter.done()
        finally:
            self._waiters[mark].remove(waiter)
            if not self._waiters[mark]:
                del self._waiters[mark]


class LossBudget:
    """The acknowledged events that the other site lacks; further writes are refused while the oldest of them was
    acknowledged more than `seconds` ago. 0: any number, for any time.

    A site that is alone is not bound, nor afterwards until the mirror has caught up. `clock` returns seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._missing: dict[Mark, float] = {}  # in the order of their acknowledgement
        self._epoch, self._bound = 0, True

    def require(self, epoch: int, *, alone: bool) -> None:
        """Before a write is sent, in this epoch of the site. Raises `BeyondLossBudget`."""
        if alone or epoch != self._epoch:  # what a former epoch left there is what its report lists
            self._missing.clear()
            self._epoch, self._bound = epoch, not alone
        while (oldest := next(iter(self._missing), None)) is not None:
            late = self._clock() - self._missing[oldest]
            if late <= self.seconds:
                return
            if self._bound:
                raise BeyondLossBudget(
                    f"the other site lacks writes that were acknowledged {late:.0f} s ago; "
                    f"DAYBOOK_LOSS_BUDGET_SECONDS is {self.seconds:g}"
                )
            del self._missing[oldest]

    def acknowledged(self, event_id: Mark) -> None:
        self._missing[event_id] = self._clock()

    def arrived(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            since = self._missing.pop(mark, None)
            if since is not None and self._clock() - since <= self.seconds:
                self._bound = True

    def oldest_ms(self) -> int | None:
        """When the oldest missing event was made, in ms UTC. May be called by any thread."""
        return next(map(_made_ms, list(self._missing)), None)


class PeerLog:
    """The other site's log of one service. Call its methods from one event loop, and `close` at the end.

    The thread runs from the first write that needs it. When the connection is lost, it begins again at the ends, and
    the marks are forgotten: the other site may come back with another log. With a loss budget it begins earlier, so
    that it misses no event that was acknowledged and copied meanwhile.
    """

    def __init__(self, settings: ApiSettings, topics: ServiceTopics) -> None:
        self._bootstrap, self._seconds = settings.peer_kafka, settings.both_sites_seconds
        self._events, self._answers = topics.events, topics.answers
        self._seen, self._budget = SeenMarks(), LossBudget(settings.loss_budget_seconds)
        self._ready = asyncio.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    async def admit(self, gateway: Gateway, *, both_sites: bool) -> None:
        """Returns when a write may be sent: within the loss budget, and for `both_sites` when no later record of the
        other site is missed. Raises `Unavailable`."""
        if not (both_sites or self._budget.seconds):
            return
        gateway.require_open()
        self._budget.require(gateway.epoch, alone=gateway.alone)
        if not both_sites:
            return
        self._start()
        if self._ready.is_set():
            return
        try:
            await asyncio.wait_for(self._ready.wait(), START_SECONDS)
        except TimeoutError as error:
            raise PeerUnavailable("the other site's log is not reachable; nothing was sent") from error

    def acknowledge(self, outcome: Outcome) -> None:
        """Its client gets to know this outcome: its event counts until the other site has it."""
        if self._budget.seconds and outcome.event_ids and not outcome.replayed:
            if (event_id := mark_of(outcome)) not in self._seen:
                self._budget.acknowledged(event_id)
            self._start()

    async def durability(self, mark: Mark, entity_id: str, *, repeated: bool) -> Durability:
        """Returns `both-sites` if the other site has this outcome, or gets it in time.

        `repeated`: its event may have arrived long ago, so the log is read around the event's time. An outcome without
        an event has no time: it counts only while its mark is remembered.
        """
        began = time.monotonic()
        seen = mark in self._seen
        if repeated and not seen:
            seen = await asyncio.to_thread(self._has_event, mark, entity_id)
        seen = seen or await self._seen.wait(mark, self._seconds - (time.monotonic() - began))
        durability: Durability = "both-sites" if seen else THIS_SITE
        WAIT.labels(durability).observe(time.monotonic() - began)
        return durability

    async def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _start(self) -> None:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="peer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except (KafkaException, KeyError) as error:
                log.warning("the other site's log is not readable, trying again", reason=str(error))
            self._call(self._lost)
            self._stopping.wait(AGAIN_SECONDS)

    def _follow(self) -> None:
        """Returns when the connection is lost."""
        lost = threading.Event()
        with clients.follower(self._bootstrap, options={"error_cb": lambda _: lost.set()}) as consumer:
            consumer.assign(self._beginning(consumer))
            self._call(self._ready.set)
            while not (self._stopping.is_set() or lost.is_set()):
                if marks := list(_marks(what_is_there(consumer, 500, 0.1))):
                    self._call(self._arrived, marks)

    def _beginning(self, consumer: Consumer) -> list[TopicPartition]:
        """The ends of what is committed; with a loss budget, what is as young as the oldest missing event. Raises
        KafkaException, or KeyError for a topic that does not exist yet."""
        topics = consumer.list_topics(timeout=BROKER_SECONDS).topics
        partitions = [
            TopicPartition(name, number)
            for name in (self._events, self._answers)
            for number in topics[name].partitions
        ]
        for partition in partitions:
            partition.offset = consumer.get_watermark_offsets(partition, BROKER_SECONDS)[1]
        if not self._budget.seconds:
            return partitions
        # What is acknowledged from here on may be there already. Not `offsets_at`: it connects anew for each topic.
        oldest_ms = self._budget.oldest_ms() or int(time.time() * 1000) - LATER_MS
        times = [TopicPartition(end.topic, end.partition, oldest_ms - EARLIER_MS) for end in partitions]
        young = consumer.offsets_for_times(times, BROKER_SECONDS)
        return [early if early.offset >= 0 else end for early, end in zip(young, partitions, strict=True)]

    def _arrived(self, marks: list[Mark]) -> None:
        self._seen.add(marks)
        self._budget.arrived(marks)

    def _lost(self) -> None:
        self._ready.clear()
        self._seen.clear()

    def _has_event(self, event_id: Mark, entity_id: str) -> bool:
        """Looks for the event near the time in its id; False if the other site does not respond in time."""
        until = time.monotonic() + self._seconds
        consumer = clients.reader(self._bootstrap, {"fetch.wait.max.ms": 100})
        try:
            partitions = consumer.list_topics(self._events, self._seconds).topics[self._events].partitions
            made = _made_ms(event_id)
            number = partition_of(entity_id, len(partitions))
            start = TopicPartition(self._events, number, made - EARLIER_MS)
            (start,) = consumer.offsets_for_times([start], self._seconds)
            if start.offset < 0:  # nothing is so young
                return False
            consumer.assign([start])
            return _is_there(consumer, event_id, made + LATER_MS, until)
        except KafkaException as error:
            log.warning("the other site's log is not readable", reason=str(error))
            return False
        finally:
            consumer.close()

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(function, *arguments)


def _made_ms(event_id: Mark) -> int:
    """The time in a UUIDv7, in ms UTC."""
    return int(event_id.replace("-", "")[:12], 16)


def _marks(records: list[Message]) -> Iterator[Mark]:
    """Raises KafkaException for what the client cannot mend."""
    for record in sound(records):
        if (mark := _mark(record)) is not None:
            yield mark


def _mark(record: Message) -> Mark | None:
    """The id of an event, or of the command of a recorded outcome; None for a record that is neither."""
    if (event_id := dict(record.headers() or ()).get("ce_id")) is not None:
        return str(event_id, errors="replace") if isinstance(event_id, bytes) else event_id
    try:
        match decode(record.value()) if record.value() is not None else None:
            case Answer(outcome=outcome) if outcome.subject.encode() == record.key():
                return outcome.command_id
    except Undecodable as error:
        log.warning("undecodable", topic=record.topic(), offset=record.offset(), reason=str(error))
    return None


def _is_there(consumer: Consumer, mark: Mark, latest_ms: int, until: float) -> bool:
    """Whether the mark comes before the partition's end, a record later than `latest_ms`, and `until`."""
    while time.monotonic() < until:
        for record in what_is_there(consumer, 500, 0.1):
            if (error := record.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return False
                if not error.retriable():
                    raise KafkaException(error)
            elif _mark(record) == mark:
                return True
            elif record.timestamp()[1] > latest_ms:
                return False
    return False
