"""When rows of the read model `orders` became visible, received by LISTEN while a load runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import asyncpg

from infra.base.waiting import TooLate, wait_until
from services.projection.engine.position import CHANNEL, EVERY_KEY
from services.projection.read_models import ORDERS

_ALL = "SELECT order_id FROM orders.orders WHERE order_id LIKE $1"
PATIENCE_SECONDS = 30.0


class Sightings:
    """Enter the context before the load. `seen`: order id → `time.perf_counter()`, ids with the prefix only."""

    def __init__(self, database_url: str, prefix: str) -> None:
        self._url, self._prefix = database_url, prefix
        self.seen: dict[str, float] = {}
        self._loop = asyncio.new_event_loop()
        self._listening, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._run(),), daemon=True
        )

    def __enter__(self) -> Sightings:
        self._thread.start()
        self._listening.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def await_all(self, expected: Iterable[str]) -> list[str]:
        """Wait until these ids were seen; return those that were not within PATIENCE_SECONDS."""
        expected = list(expected)

        def missing() -> list[str]:
            return [key for key in expected if key not in self.seen]

        with suppress(TooLate):
            wait_until(missing, "all are seen", PATIENCE_SECONDS, enough=lambda keys: not keys, every=0.1)
        return missing()

    def _work(self) -> None:
        self._loop.run_until_complete(self._run())

    async def _run(self) -> None:
        connection, self._connection = await asyncpg.connect(self._url), await asyncpg.connect(self._url)
        self._looking = asyncio.Lock()
        await connection.add_listener(CHANNEL, self._notified)
        self._listening.set()
        await self._stop.wait()
        async with self._looking:
            await self._connection.close()
        await connection.close()

    def _notified(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        name, *keys = str(payload).split("\n")
        if name != ORDERS.name:
            return
        if keys == [EVERY_KEY]:  # too many to name: look for them
            self._task = asyncio.ensure_future(self._look())
        else:
            self._note(keys)

    async def _look(self) -> None:
        async with self._looking:
            self._note([row[0] for row in await self._connection.fetch(_ALL, f"{self._prefix}%")])

    def _note(self, keys: list[str]) -> None:
        now = time.perf_counter()
        for key in keys:
            if key.startswith(self._prefix):
                self.seen.setdefault(key, now)
