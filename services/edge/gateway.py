"""The HTTP side of a write service: send a command to the log, await its outcome.

The event loop encodes commands, hands them to librdkafka, and now and then serves the producer's callbacks:
a thread would want the interpreter for each record, only to learn that it was delivered. One thread hears the
outcomes, one looks for a lost broker. Nothing here is state that matters: what is lost with the process is
asked for again under the same command id.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from prometheus_client import Gauge

from contracts.kernel.records import Outcome
from services.edge.outcomes import OutcomeReader
from services.edge.pending_outcomes import Awaited, Waiting, fail
from services.edge.unavailable import LogUnavailable, NotTaking, Overloaded
from services.kernel.log.clients import client
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, ReplyAddress, now_micros, write_headers

PENDING = Gauge("daybook_gateway_pending", "Commands sent whose outcome is awaited", ["service"])
TICK_SECONDS = 0.05


@dataclass(frozen=True)
class GatewaySettings:
    """`replica` is the partition of `<service>.outcomes` that this process alone reads; times in seconds;
    `peer_url` is this API at the other site, where there is one."""

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
    """`start` once inside the event loop, `send` from that loop only, `close` at the end."""

    def __init__(self, settings: GatewaySettings, on_fatal: Callable[[str], None]) -> None:
        self._settings = settings
        self._on_fatal = on_fatal
        self._commands = f"{settings.service}.commands"
        self._source = f"daybook/{settings.site}/{settings.service}-api/{settings.replica}"
        self._reply_to = ReplyAddress(f"{settings.service}.outcomes", settings.replica, "", "")
        self._reader = OutcomeReader(settings.bootstrap, self._reply_to.topic, settings.replica, self._hear)
        self._waiting = Waiting(settings.wait)
        self._out_of_order: str | None = "not started"
        self._broker_lost = True
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        PENDING.labels(settings.service).set_function(lambda: len(self._waiting))

    async def start(self) -> None:
        """Begin to connect; returns at once. `not_ready` tells when commands are taken."""
        self._loop = asyncio.get_running_loop()
        self._producer = Producer(_producer_config(self._settings) | {"error_cb": self._producer_failed})
        self._out_of_order = None
        self._threads = [
            threading.Thread(target=self._reader.run, args=(self._stopping,), name="outcomes", daemon=True),
            threading.Thread(target=self._look_for_broker, name="broker", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._next_tick = self._loop.call_later(TICK_SECONDS, self._tick)

    async def close(self) -> None:
        """Stop; whoever still waits gets `OutcomeUnknown`."""
        self._out_of_order = "stopping"
        self._stopping.set()
        self._next_tick.cancel()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.to_thread(self._producer.flush, self._settings.delivery_timeout)
        self._waiting.fail_all("the process is stopping")

    def not_ready(self) -> str | None:
        """Why commands are not taken, or None."""
        if self._broker_lost:
            return self._out_of_order or "the log is not reachable"
        return self._out_of_order or self._reader.not_ready

    @property
    def epoch(self) -> int:
        """The site's write epoch, as far as it is known here."""
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
        """One command to its entity's partition, and what became of it. Raises an `Unanswered`.

        Requests that wait under the same id and hash all get the outcome that comes first.
        """
        if (reason := self.not_ready()) is not None:
            raise LogUnavailable(reason)
        if not self._reader.control.taking:
            raise NotTaking(self._reader.control, self._settings.peer_url)
        if len(self._waiting) >= self._settings.max_pending:
            raise Overloaded(f"{len(self._waiting)} commands are waiting")
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
        return await self._exchange(
            (command_id, request_hash), entity_id, encode(self._commands, command), metadata
        )

    async def _exchange(self, awaited: Awaited, key: str, value: bytes, metadata: Metadata) -> Outcome:
        waiter = self._waiting.add(awaited)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:  # `close` serves callbacks in another thread
                self._loop.call_soon_threadsafe(fail, waiter, LogUnavailable(error.str()))

        try:
            self._producer.produce(
                self._commands, value, key, headers=write_headers(metadata), on_delivery=delivered
            )
            return await waiter.outcome
        except BufferError as error:
            raise Overloaded("the producer's queue is full") from error
        except KafkaException as error:
            raise LogUnavailable(str(error)) from error
        finally:
            self._waiting.remove(awaited, waiter)

    def _hear(self, outcomes: list[Outcome]) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._waiting.resolve, outcomes)

    def _tick(self) -> None:
        """Learn of failed deliveries; let go of those who waited too long."""
        self._next_tick = self._loop.call_later(TICK_SECONDS, self._tick)
        self._producer.poll(0)
        self._waiting.expire()

    def _look_for_broker(self) -> None:
        while not self._stopping.wait(0.1):
            if self._broker_lost:
                self._broker_lost = not self._reachable()

    def _reachable(self) -> bool:
        try:
            found = self._producer.list_topics(self._commands, timeout=1)
        except KafkaException:
            return False
        return found.topics[self._commands].error is None

    def _producer_failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._out_of_order = f"the producer failed: {error.str()}"
            self._on_fatal(self._out_of_order)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._broker_lost = True


def _producer_config(settings: GatewaySettings) -> dict[str, Any]:
    return client(settings.bootstrap) | {
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        # fewer, larger requests: with 64 callers a fifth less processor time per order than 1 ms takes
        "linger.ms": 5,
        "message.timeout.ms": int(settings.delivery_timeout * 1000),
        "message.max.bytes": 4_000_000,
        "queue.buffering.max.kbytes": settings.max_buffered_kib,
        "delivery.report.only.error": True,
        "socket.nagle.disable": True,
    }
