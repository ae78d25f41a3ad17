"""The HTTP side of a write service: sends a command to the log and waits for its outcome.

The event loop encodes commands, hands them to librdkafka and regularly serves the producer's callbacks; a
thread would need the interpreter for each delivery report. One thread reads the outcomes, one looks for a lost
broker. No state here must survive: a client that lost its response sends the command again under the same id.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from prometheus_client import Gauge

from contracts.kernel.records import Outcome
from contracts.topics import TOPICS
from services.edge.outcomes import OutcomeReader
from services.edge.pending_outcomes import OutcomeKey, PendingOutcomes, fail
from services.edge.unavailable import LogUnavailable, Overloaded, SiteUnavailable
from services.kernel.log import clients
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, ReplyAddress, now_micros, write_headers

PENDING = Gauge("daybook_gateway_pending", "Commands sent whose outcome is awaited", ["service"])
TICK_SECONDS = 0.05


@dataclass(frozen=True)
class GatewaySettings:
    """`replica`: the partition of `<service>.outcomes` that only this process reads. Times are in seconds.
    `peer_url`: this API at the other site, if there is one."""

    service: str
    bootstrap: str
    site: str = "home"
    replica: int = 0
    wait: float = 10.0
    delivery_timeout: float = 5.0
    max_pending: int = 4096
    max_buffered_kib: int = 65_536
    peer_url: str = ""


class Gateway:
    """Call `start` once inside the event loop, `send` only from that loop, and `close` at the end."""

    def __init__(self, settings: GatewaySettings, on_fatal: Callable[[str], None]) -> None:
        self._settings = settings
        self._on_fatal = on_fatal
        topics = TOPICS[settings.service]
        self._commands = topics.commands
        self._source = f"daybook/{settings.site}/{settings.service}-api/{settings.replica}"
        self._reply_to = ReplyAddress(topics.outcomes, settings.replica, "", "")
        self._reader = OutcomeReader(
            settings.bootstrap, self._reply_to.topic, settings.replica, self._receive
        )
        self._pending = PendingOutcomes(settings.wait)
        self._failure: str | None = "not started"
        self._broker_lost = True
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        PENDING.labels(settings.service).set_function(lambda: len(self._pending))

    async def start(self) -> None:
        """Begins to connect and returns at once. `not_ready` returns None when commands are accepted."""
        self._loop = asyncio.get_running_loop()
        options = _producer_options(self._settings) | {"error_cb": self._producer_failed}
        self._producer = clients.writer(self._settings.bootstrap, options)
        self._failure = None
        self._threads = [
            threading.Thread(target=self._reader.run, args=(self._stopping,), name="outcomes", daemon=True),
            threading.Thread(target=self._look_for_broker, name="broker", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._next_tick = self._loop.call_later(TICK_SECONDS, self._tick)

    async def close(self) -> None:
        """Stops; requests that still wait fail with `OutcomeUnknown`."""
        self._failure = "stopping"
        self._stopping.set()
        self._next_tick.cancel()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.to_thread(self._producer.flush, self._settings.delivery_timeout)
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

    async def send(
        self,
        command: Any,
        *,
        entity_id: str,
        command_id: str,
        request_hash: str,
        correlation_id: str,
        expected_version: int | None = None,
        traceparent: str = "",
    ) -> Outcome:
        """Sends one command to its entity's partition and returns the outcome. Raises `Unavailable`. All requests
        that wait under the same id and hash get the first outcome."""
        if (reason := self.not_ready()) is not None:
            raise LogUnavailable(reason)
        if not self._reader.control.taking:
            raise SiteUnavailable(self._reader.control, self._settings.peer_url)
        if len(self._pending) >= self._settings.max_pending:
            raise Overloaded(f"{len(self._pending)} commands are waiting")
        metadata = Metadata(
            id=command_id,
            type=command.TYPE,
            subject=entity_id,
            source=self._source,
            recorded_at=now_micros(),
            correlation_id=correlation_id,
            causation_id=correlation_id,
            epoch=self.epoch,
            request_hash=request_hash,
            reply_to=self._reply_to,
            expected_version=expected_version,
            traceparent=traceparent,
        )
        return await self._send_and_wait(
            (command_id, request_hash), entity_id, encode(self._commands, command), metadata
        )

    async def _send_and_wait(
        self, key: OutcomeKey, entity_id: str, value: bytes, metadata: Metadata
    ) -> Outcome:
        waiter = self._pending.add(key)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:  # `close` runs callbacks in another thread
                self._loop.call_soon_threadsafe(fail, waiter, LogUnavailable(error.str()))

        try:
            self._producer.produce(
                self._commands, value, entity_id, headers=write_headers(metadata), on_delivery=delivered
            )
            return await waiter.outcome
        except BufferError as error:
            raise Overloaded("the producer's queue is full") from error
        except KafkaException as error:
            raise LogUnavailable(str(error)) from error
        finally:
            self._pending.remove(key, waiter)

    def _receive(self, outcomes: list[Outcome]) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._pending.resolve, outcomes)

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


def _producer_options(settings: GatewaySettings) -> dict[str, Any]:
    return clients.LASTING | {
        # Fewer, larger requests: with 64 callers a fifth less processor time per order than at 1 ms.
        "linger.ms": 5,
        "message.timeout.ms": int(settings.delivery_timeout * 1000),
        "message.max.bytes": 4_000_000,
        "queue.buffering.max.kbytes": settings.max_buffered_kib,
        "delivery.report.only.error": True,
        "socket.nagle.disable": True,
    }
