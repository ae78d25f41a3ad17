"""The gateway of a write API: sends commands to the log and waits for their outcomes.

The event loop encodes commands, hands them to librdkafka and regularly serves the producer's callbacks; a
thread would need the interpreter for each delivery report. One thread reads the outcomes, one looks for a lost
broker. No state here must survive: a client that lost its response sends the command again under the same id.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from prometheus_client import Counter, Gauge

from contracts.kernel.records import Outcome, OutcomeBatch
from contracts.topics import TOPICS
from services.edge.problems import LogUnavailable, OutcomeUnknown, Overloaded, SiteUnavailable, Unavailable
from services.edge.settings import ApiSettings
from services.kernel.log import clients
from services.kernel.log.control import CONTROL, Control
from services.kernel.log.proof import SiteProver
from services.kernel.log.reader import high_watermarks
from services.kernel.record.codec import Undecodable, decode, encode, what_is_there
from services.kernel.record.envelope import Headers, Metadata, ReplyAddress, write_headers

PENDING = Gauge("daybook_gateway_pending", "Commands sent whose outcome is awaited", ["service"])
DROPPED = Counter("daybook_gateway_dropped", "Outcomes of workers of another epoch, dropped")
TICK_SECONDS = 0.05
# How long a command waits for others (ADR 14): fewer requests to the broker take less of its processor time.
LONGEST_SECONDS = 0.005
SECONDS_PER_COMMAND = 0.0002
PRODUCER_OPTIONS = {
    "linger.ms": 0.2,  # commands are handed over together
    "message.max.bytes": 4_000_000,
    "queue.buffering.max.kbytes": 65_536,
    "delivery.report.only.error": True,
}

OutcomeKey: TypeAlias = tuple[str, str]
"""Command id and request hash: requests with the same key get the same outcome."""

log = structlog.get_logger(__name__)


class Gateway:
    """Call `start` once inside the event loop, `send` only from that loop, and `close` at the end."""

    def __init__(self, service: str, settings: ApiSettings, on_fatal: Callable[[str], None]) -> None:
        self._settings = settings
        self._on_fatal = on_fatal
        topics = TOPICS[service]
        self._commands = topics.commands
        self._source = f"daybook/{settings.site}/{service}-api/{settings.replica}"
        self._reply_to = ReplyAddress(topics.outcomes, settings.replica, "", "")
        self._reader = OutcomeReader(settings.kafka, topics.outcomes, settings.replica, self._receive)
        self._pending = PendingOutcomes(settings.wait_seconds)
        self._unsent = SendBuffer(self._produce)
        self._failure: str | None = "not started"
        self._broker_lost = True
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._prover: SiteProver | None = None
        PENDING.labels(service).set_function(lambda: len(self._pending))

    async def start(self) -> None:
        """Begins to connect and returns at once. `not_ready` returns None when commands are accepted."""
        self._loop = asyncio.get_running_loop()
        timeout_ms = int(self._settings.delivery_seconds * 1000)
        options = {"message.timeout.ms": timeout_ms, "error_cb": self._producer_failed}
        self._producer = clients.writer(self._settings.kafka, PRODUCER_OPTIONS | options)
        self._failure = None
        self._threads = [
            threading.Thread(target=self._reader.run, args=(self._stopping,), name="outcomes", daemon=True),
            threading.Thread(target=self._look_for_broker, name="broker", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if self._settings.peer_kafka:
            sites = self._settings.kafka, self._settings.peer_kafka
            self._prover = SiteProver(*sites, lambda: self._reader.control, self._settings.lease_seconds)
        self._next_tick = self._loop.call_later(TICK_SECONDS, self._tick)

    async def close(self) -> None:
        """Stops; requests that still wait fail with `OutcomeUnknown`."""
        self._failure = "stopping"
        self._stopping.set()
        self._next_tick.cancel()
        self._unsent.flush()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.to_thread(self._producer.flush, self._settings.delivery_seconds)
        self._pending.fail_all("the process is stopping")

    def not_ready(self) -> str | None:
        """Returns why commands are not accepted, or None."""
        if self._broker_lost:
            return self._failure or "the log is not reachable"
        return self._failure or self._reader.not_ready

    @property
    def epoch(self) -> int:
        """The site's write epoch, as last read from `site.control`."""
        return self._reader.control.role.epoch

    @property
    def alone(self) -> bool:
        """The other site cannot be active in this epoch: an operator, or a takeover, recorded it."""
        return self._reader.control.alone

    def unavailable(self) -> SiteUnavailable | None:
        """Why nothing may be acknowledged now: for the last moment before a response. With one site it always may."""
        if self._prover is None:
            return None
        control, unproven = self._reader.control, self._prover.why_not()
        if control.role.role == "active" and not unproven:
            return None
        return SiteUnavailable(control, self._settings.peer_url, unproven)

    def require_open(self) -> None:
        """Raises `Unavailable` if commands are not accepted now."""
        if self.not_ready() is not None:  # the reason, with addresses and paths, is for logs and health only
            raise LogUnavailable("the log is not reachable")
        if not self._reader.control.taking:
            raise SiteUnavailable(self._reader.control, self._settings.peer_url)
        if (unavailable := self.unavailable()) is not None:
            raise unavailable
        if len(self._pending) >= self._settings.max_pending:
            raise Overloaded(f"{len(self._pending)} commands are waiting")

    async def send(self, command: Any, request: Metadata) -> Outcome:
        """Sends one command to its entity's partition and returns the outcome. Raises `Unavailable`. All requests
        that wait under the same id and hash get the first outcome. `request` lacks what only the gateway has: source,
        epoch and reply address."""
        self.require_open()
        metadata = request._replace(source=self._source, epoch=self.epoch, reply_to=self._reply_to)
        waiting, value = (metadata.id, metadata.request_hash), encode(self._commands, command)
        return await self._send_and_wait(waiting, metadata.subject, value, metadata)

    async def _send_and_wait(
        self, key: OutcomeKey, entity_id: str, value: bytes, metadata: Metadata
    ) -> Outcome:
        waiter = self._pending.add(key)
        try:
            self._unsent.add(Unsent(waiter, entity_id, value, write_headers(metadata)))
            return await waiter.outcome
        finally:
            self._pending.remove(key, waiter)

    def _produce(self, commands: list[Unsent]) -> None:
        for waiter, entity_id, value, headers in commands:
            report = partial(self._delivered, waiter)
            try:
                self._producer.produce(self._commands, value, entity_id, headers=headers, on_delivery=report)
            except BufferError:
                fail(waiter, Overloaded("the producer's queue is full"))
            except KafkaException as error:
                fail(waiter, LogUnavailable(str(error)))

    def _delivered(self, waiter: Waiter, error: KafkaError | None, _: Message) -> None:
        if error is not None:  # `close` runs callbacks in another thread
            self._loop.call_soon_threadsafe(fail, waiter, LogUnavailable(error.str()))

    def _receive(self, outcomes: list[Outcome]) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._resolve, outcomes)

    def _resolve(self, outcomes: list[Outcome]) -> None:
        self._unsent.released = len(outcomes)
        self._pending.resolve(outcomes)

    def _tick(self) -> None:
        """Handles failed deliveries and requests that have waited too long."""
        self._next_tick = self._loop.call_later(TICK_SECONDS, self._tick)
        self._producer.poll(0)
        self._pending.expire()

    def _look_for_broker(self) -> None:
        while not self._stopping.wait(0.1):
            if self._broker_lost:
                self._broker_lost = not self._reachable()

    def _reachable(self) -> bool:
        try:
            cluster = self._producer.list_topics(self._commands, timeout=1)
        except KafkaException:
            return False
        return cluster.topics[self._commands].error is None

    def _producer_failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._failure = f"the producer failed: {error.str()}"
            self._on_fatal(self._failure)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._broker_lost = True


class Waiter(NamedTuple):
    """`deadline`: by `time.monotonic()`."""

    deadline: float
    outcome: asyncio.Future[Outcome]


class Unsent(NamedTuple):
    waiter: Waiter
    entity_id: str
    value: bytes
    headers: Headers


class SendBuffer:
    """Commands that are sent together. Only the event loop may use it.

    `released`: how many outcomes came together. Their clients may send the next commands now: the buffer waits for
    that many, at most for a time that grows with their number.
    """

    def __init__(self, send: Callable[[list[Unsent]], None], longest: float = LONGEST_SECONDS) -> None:
        self._send = send
        self._longest = longest
        self._unsent: list[Unsent] = []
        self._end: asyncio.TimerHandle | None = None
        self.released = 0

    def add(self, command: Unsent) -> None:
        self._unsent.append(command)
        if len(self._unsent) >= self.released:
            self.flush()
        elif self._end is None:
            wait = min(self._longest, self.released * SECONDS_PER_COMMAND)
            self._end = asyncio.get_running_loop().call_later(wait, self.flush)

    def flush(self) -> None:
        """Sends what waits, now."""
        if self._end is not None:
            self._end.cancel()
        commands, self._unsent, self._end = self._unsent, [], None
        self._send(commands)


class PendingOutcomes:
    """Waiting requests, each with the same timeout in seconds. Only the event loop may use it.

    `expire` checks all of them now and then: a timer for each would cost more.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._waiters: dict[OutcomeKey, list[Waiter]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: OutcomeKey) -> Waiter:
        """Adds a waiter whose future gets the outcome or an `Unavailable`; the caller must `remove` it."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        waiter = Waiter(time.monotonic() + self._timeout, future)
        self._waiters.setdefault(key, []).append(waiter)
        self._count += 1
        return waiter

    def remove(self, key: OutcomeKey, waiter: Waiter) -> None:
        self._count -= 1
        waiters = self._waiters.get(key)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[key]

    def resolve(self, outcomes: Iterable[Outcome]) -> None:
        """Gives each outcome to all requests that wait for it."""
        for outcome in outcomes:
            for waiter in self._waiters.pop((outcome.command_id, outcome.request_hash), ()):
                if not waiter.outcome.done():
                    waiter.outcome.set_result(outcome)

    def expire(self) -> None:
        """Fails the requests whose deadline has passed."""
        now = time.monotonic()
        for waiter in self._all():
            if waiter.deadline <= now:
                fail(waiter, OutcomeUnknown(f"no outcome within {self._timeout:g} s"))

    def fail_all(self, reason: str) -> None:
        for waiter in self._all():
            fail(waiter, OutcomeUnknown(reason))

    def _all(self) -> list[Waiter]:
        return [waiter for waiters in self._waiters.values() for waiter in waiters]


def fail(waiter: Waiter, error: Unavailable) -> None:
    """Fails a waiter that has no result yet."""
    if not waiter.outcome.done():
        waiter.outcome.set_exception(error)


class OutcomeReader:
    """Reads a gateway's partition of `<service>.outcomes`, and `site.control`, in its own thread.

    Calls `on_outcomes` there with the outcomes of one read, in order. `not_ready` is None once both topics have been
    read to their ends: no later outcome is missed.
    """

    def __init__(
        self, bootstrap: str, topic: str, partition: int, on_outcomes: Callable[[list[Outcome]], None]
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partition = partition
        self._on_outcomes = on_outcomes
        self._unread: set[tuple[str, int]] = set()
        self.not_ready: str | None = "the log is not reachable yet"
        self.control = Control()

    def run(self, stopping: threading.Event) -> None:
        """Reads until `stopping`; retries each second when the log fails."""
        while not stopping.is_set():
            try:
                self._read(stopping)
            except (KafkaException, KeyError, Undecodable, TypeError) as error:
                self.not_ready = f"outcomes are not readable: {error}"
                log.warning("outcomes are not readable, trying again", reason=str(error))
                stopping.wait(1)

    def _read(self, stopping: threading.Event) -> None:
        with clients.reader(self._bootstrap) as consumer:
            self._assign(consumer)
            while not stopping.is_set():
                records = what_is_there(consumer, 500, 0.2)
                outcomes = [outcome for record in records for outcome in self._outcomes_of(record)]
                if outcomes:
                    self._on_outcomes(outcomes)
                if not self._unread:
                    self.not_ready = None

    def _assign(self, consumer: Consumer) -> None:
        """Starts at the current end of the outcomes: later commands have later outcomes."""
        end = high_watermarks(self._bootstrap, self._topic, [self._partition], timeout=10)[self._partition]
        consumer.assign([TopicPartition(self._topic, self._partition, end), TopicPartition(CONTROL, 0, 0)])
        self._unread = {(self._topic, self._partition), (CONTROL, 0)}

    def _outcomes_of(self, record: Message) -> Iterable[Outcome]:
        error = record.error()
        if error is None and record.topic() == CONTROL:
            self.control.take(record.key(), record.value())
        elif error is None:
            return self._decode(record)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard((record.topic(), record.partition()))
        elif not error.retriable():
            raise KafkaException(error)
        return ()

    def _decode(self, record: Message) -> Iterable[Outcome]:
        try:
            match decode(record.value()) if record.value() is not None else None:
                case OutcomeBatch(outcomes=outcomes, epoch=epoch):
                    if self.control.counts(epoch):
                        return outcomes
                    DROPPED.inc(len(outcomes))
                    log.warning("outcomes_dropped", outcomes=len(outcomes), epoch=epoch)
        except Undecodable as error:
            # These requests end as unknown; the next outcomes still arrive.
            log.error("undecodable", topic=record.topic(), offset=record.offset(), reason=str(error))
        return ()
