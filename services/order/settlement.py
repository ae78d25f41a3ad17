"""Serves `?wait=settled`: follows the end of `order.events` while a request waits.

It reads only keys and headers and skips foreign records. Everything here is bounded: a request that it cannot
serve gets `placed`.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from contracts.order.events import OrderCancelled, OrderConfirmed, OrderExpired, OrderRejected
from services.kernel.log import clients
from services.kernel.log.reader import high_watermarks, partitions_of
from services.kernel.log.rule import Event, Journal, kind_of_message
from services.kernel.record.codec import sound, what_is_there

TOPIC = "order.events"
MAX_WATCHED = 1000
MAX_RECENT = 10_000
START_SECONDS = 5.0

STATUS_OF = {
    OrderConfirmed.TYPE: "confirmed",
    OrderRejected.TYPE: "rejected",
    OrderExpired.TYPE: "expired",
    OrderCancelled.TYPE: "cancelled",
}
NO_DECISIONS = Journal()  # decisions come after the event that a request waits for

log = structlog.get_logger(__name__)


class Settlement(NamedTuple):
    status: str
    version: int
    event_id: str
    epoch: int


class SettlementTail:
    """Call all methods from one event loop. `epoch()` is the site's epoch: events of another epoch are foreign.

    A consumer thread runs from the first `watch` until `close`. It keeps the newest `MAX_RECENT` settlements for
    repeated requests.
    """

    def __init__(self, bootstrap: str, epoch: Callable[[], int]) -> None:
        self._bootstrap, self.epoch = bootstrap, epoch
        self._watched: dict[str, list[asyncio.Future[Settlement]]] = {}
        self._waiting = 0
        self._recent: OrderedDict[str, Settlement] = OrderedDict()
        self._tail: _Tail | None = None

    async def watch(self, order_id: str) -> asyncio.Future[Settlement] | None:
        """Begins to watch. Call it before sending the command, so that nothing is missed; end with `unwatch`.

        Returns None if the tail cannot serve the request.
        """
        if self._waiting >= MAX_WATCHED:
            return None
        waiter: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
        self._watched.setdefault(order_id, []).append(waiter)
        self._waiting += 1
        if not await self._started():
            self.unwatch(order_id, waiter)
            return None
        if order_id in self._recent and not waiter.done():
            waiter.set_result(self._recent[order_id])
        return waiter

    def unwatch(self, order_id: str, waiter: asyncio.Future[Settlement]) -> None:
        waiters = self._watched[order_id]
        waiters.remove(waiter)
        if not waiters:
            del self._watched[order_id]
        self._waiting -= 1

    async def close(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.stopping.set()
            await asyncio.to_thread(tail.thread.join)

    async def _started(self) -> bool:
        if self._tail is None or not self._tail.thread.is_alive():
            self._recent.clear()
            self._tail = _Tail(self, self._bootstrap)
        try:
            await asyncio.wait_for(asyncio.shield(self._tail.positioned), START_SECONDS)
        except (TimeoutError, KafkaException, KeyError) as error:
            log.warning("waiting for settled orders is not possible", reason=repr(error))
            return False
        return True

    def on_settlements(self, settlements: list[tuple[str, Settlement]]) -> None:
        """Completes the requests that wait for these orders; they are in the log's order."""
        for order_id, settlement in settlements:
            self._recent[order_id] = settlement
            for waiter in self._watched.get(order_id, ()):
                if not waiter.done():
                    waiter.set_result(settlement)
        while len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)


class _Tail:
    def __init__(self, owner: SettlementTail, bootstrap: str) -> None:
        self._owner = owner
        self._bootstrap = bootstrap
        self._loop = asyncio.get_running_loop()
        self.positioned: asyncio.Future[None] = self._loop.create_future()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name="settled", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with clients.follower(self._bootstrap) as consumer:
                self._follow(consumer)
        except (KafkaException, KeyError) as error:  # KeyError: the topic is not there, or not to be seen
            self._loop.call_soon_threadsafe(self._failed, error)

    def _follow(self, consumer: Consumer) -> None:
        partitions = partitions_of(self._bootstrap, TOPIC)
        ends = high_watermarks(self._bootstrap, TOPIC, partitions)
        consumer.assign([TopicPartition(TOPIC, partition, end) for partition, end in ends.items()])
        self._loop.call_soon_threadsafe(self._ready)
        while not self.stopping.is_set():
            records = what_is_there(consumer, 500, 0.2)
            settlements = list(_settlements(records, len(partitions), self._owner.epoch()))
            if settlements and not self.stopping.is_set():
                self._loop.call_soon_threadsafe(self._owner.on_settlements, settlements)

    def _ready(self) -> None:
        if not self.positioned.done():
            self.positioned.set_result(None)

    def _failed(self, error: Exception) -> None:
        log.warning("the tail of settled orders ended", reason=str(error))
        if not self.positioned.done():
            self.positioned.set_exception(error)


def _settlements(records: list[Message], partitions: int, epoch: int) -> Iterable[tuple[str, Settlement]]:
    for record in sound(records):
        kind = kind_of_message(record, partitions, epoch, NO_DECISIONS)
        if isinstance(kind, Event) and kind.metadata.type in STATUS_OF:
            meta = kind.metadata
            yield meta.subject, Settlement(STATUS_OF[meta.type], meta.version, meta.id, meta.epoch)
