"""What a reader of a read model receives: at least the token's version, and whether rows are stale.

Read-your-writes: the projection notifies in its transaction which keys it changed; an early reader waits for that
notification and does not poll. If the token's event is lost for good, the response says so. A row is stale if its key
is parked behind an event that could not be applied: the response says so until an operator decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Event
from typing import Any, Literal, TypeAlias

import asyncpg
import structlog

from services.edge.problems import Problem
from services.edge.server import end_process
from services.kernel.record.envelope import Token, partition_of
from services.projection.engine.database import QUERY_SECONDS, query_connection
from services.projection.engine.position import CHANNEL, EVERY_KEY, require_own_tables
from services.projection.engine.read_model import DATABASE_ERRORS, Connection, Lineage, OtherCode, ReadModel
from services.projection.engine.row_fold import skipped_versions
from services.projection.read_models import ORDERS, READ_MODELS, STOCK

RECONNECT_SECONDS = 0.5
TABLES_CHANGED = Event()
"""Set if the process ends because a rebuild with other code changed the tables."""
# Of each partition: the highest epoch seen, and whether all that was mirrored before a promotion to a later
# epoch than the token's is applied.
_EPOCHS = """
SELECT at.epoch, EXISTS (
    SELECT FROM promotion p
    WHERE p.topic = at.topic AND p.partition = at.partition
      AND p.epoch > $2 AND p.ends_at <= at.next_offset
) AS ended
FROM position at WHERE at.read_model = $1 ORDER BY at.partition"""

Stale: TypeAlias = Literal["parked"] | None
PARKED: Stale = "parked"
_PARKED_KEYS = """
SELECT n.key FROM unnest($2::text[]) AS n(key)
WHERE EXISTS (SELECT FROM parked p WHERE p.read_model = $1 AND p.key = n.key)"""
_ANY_PARKED = "SELECT EXISTS (SELECT FROM parked WHERE read_model = $1)"

log = structlog.get_logger(__name__)


async def stale_keys(connection: Connection, model: ReadModel[Any], keys: Sequence[str]) -> frozenset[str]:
    """Returns those of `keys` that are parked in the read model."""
    rows = await connection.fetch(_PARKED_KEYS, model.name, list(keys))
    return frozenset(row["key"] for row in rows)


async def stale(connection: Connection, model: ReadModel[Any], key: str | None = None) -> Stale:
    """Tells whether the key is parked in the read model; without a key, whether any key is."""
    if key is None:
        return PARKED if await connection.fetchval(_ANY_PARKED, model.name) else None
    return PARKED if await stale_keys(connection, model, [key]) else None


class Notifications:
    """Requests that wait for a key of a read model."""

    def __init__(self) -> None:
        self.listening = False
        self._rebuilt = asyncio.Event()
        self._events: dict[tuple[str, str], set[asyncio.Event]] = {}

    @contextmanager
    def changes(self, model: str, key: str) -> Iterator[asyncio.Event]:
        """Yields an event that is set whenever the key may have changed."""
        changed = asyncio.Event()
        self._events.setdefault((model, key), set()).add(changed)
        try:
            yield changed
        finally:
            waiting = self._events[model, key]
            waiting.discard(changed)
            if not waiting:
                del self._events[model, key]

    def notified(self, payload: str) -> None:
        model, *keys = payload.split("\n")
        if keys == [EVERY_KEY]:
            self._rebuilt.set()
        for name, key in list(self._events) if keys == [EVERY_KEY] else [(model, key) for key in keys]:
            for changed in self._events.get((name, key), ()):
                changed.set()

    def notify_all(self) -> None:
        for waiting in self._events.values():
            for changed in waiting:
                changed.set()

    async def listen(self, database_url: str) -> None:
        """Listens until cancelled. After a lost connection, all waiting requests check again. Ends the process if a
        rebuild with other code changed the tables."""
        while True:
            try:
                async with _listening(database_url, self.notified) as (connection, lost):
                    await require_own_tables(connection, READ_MODELS)
                    self.listening = True
                    self.notify_all()
                    while not lost.is_set():
                        await _wait_for_any(lost, self._rebuilt)
                        self._rebuilt.clear()
                        # also from time to time: nobody says that a silent connection is gone
                        await require_own_tables(connection, READ_MODELS)
            except OtherCode as error:
                TABLES_CHANGED.set()
                end_process(str(error))
                return
            except DATABASE_ERRORS as error:
                log.warning("cannot listen for changes", error=repr(error))
            self.listening = False
            await asyncio.sleep(RECONNECT_SECONDS)


@asynccontextmanager
async def _listening(database_url: str, notified: Any) -> AsyncIterator[tuple[Connection, asyncio.Event]]:
    lost = asyncio.Event()
    connection = await asyncpg.connect(database_url, command_timeout=QUERY_SECONDS)
    try:
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, lambda _connection, _pid, _channel, payload: notified(payload))
        yield connection, lost
    finally:
        connection.terminate()


async def _wait_for_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=QUERY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


class Visibility:
    """Waits until the tables have the version of a token."""

    def __init__(self, pool: asyncpg.Pool[Any], notifications: Notifications) -> None:
        self._pool = pool
        self._notifications = notifications

    async def visible(
        self, token: Token, model: ReadModel[Any], wait: float, customer: str | None = None
    ) -> None:
        """Returns when `model` has the token's version, at once if it does not read the token's stream. To a
        `customer`, another one's order is as one that does not exist.

        Raises `Problem`: 503 `not_yet_visible` after `wait` seconds, 503 `key_parked` if the version waits for an
        operator, 410 `lost_in_failover` if a failover ended the token's epoch before it, 503 `stream_forked` if
        another event has its version.
        """
        kind, _, key = token.stream.partition("/")
        if model.stream != kind:
            return
        deadline = time.monotonic() + wait
        guard = ORDERS if kind == "order" else STOCK
        for waiting in dict.fromkeys((guard, model)):
            await self._wait_for_version(waiting, key, token, deadline, customer)

    async def _wait_for_version(
        self, model: ReadModel[Any], key: str, token: Token, deadline: float, customer: str | None
    ) -> None:
        with self._notifications.changes(model.name, key) as changed:
            while True:
                changed.clear()
                if await self._has_version(model, key, token, customer):
                    return
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise _not_yet(token)
                try:
                    await asyncio.wait_for(changed.wait(), remaining)
                except TimeoutError:
                    continue  # check one last time

    async def _has_version(self, model: ReadModel[Any], key: str, token: Token, customer: str | None) -> bool:
        guard = STOCK if model.stream == STOCK.stream else ORDERS
        async with query_connection(self._pool) as connection:
            row = (await model.store(model.name).load(connection, [key])).get(key)
            if customer and model is ORDERS and row is not None and row.row.customer_id != customer:
                row = None
            if row is None or row.version < token.version:
                # What is parked of an order without a row may be another customer's.
                hidden = customer and model is ORDERS and row is None
                if not hidden and await stale(connection, model, key):
                    raise key_parked(model, key, f"version {token.version} of {token.stream}")
                if (key, token.version) in await skipped_versions(connection, model.name, [key]):
                    return True  # the operator who skipped it has decided that these rows do without it
                if await self._epoch_ended(connection, guard, key, token.epoch):
                    raise _lost(token)
                return token.version == 0
        if model is guard and token.version:
            if epoch_of(row.lineage, token.version) > token.epoch:
                raise _lost(token)
            if token.event_id and row.version == token.version and row.event_id != token.event_id:
                raise _forked(token)
        return True

    async def _epoch_ended(self, connection: Connection, guard: ReadModel[Any], key: str, epoch: int) -> bool:
        """Whether no event of `epoch` can follow in the key's partition: a later epoch is open there, or all
        that had come over when the site was promoted was applied."""
        partitions = await connection.fetch(_EPOCHS, guard.name, epoch)
        if not partitions:
            return False
        at = partitions[partition_of(key, len(partitions))]
        return bool(at["epoch"] > epoch or at["ended"])


def epoch_of(lineage: Lineage, version: int) -> int:
    """The epoch that wrote `version`; 0 before the first."""
    return max((epoch for epoch, first in lineage if first <= version), default=0)


def _not_yet(token: Token) -> Problem:
    detail = f"version {token.version} of {token.stream} has not arrived here; repeat with the same token"
    return Problem(503, "not_yet_visible", detail, headers={"Retry-After": "1"})


def _forked(token: Token) -> Problem:
    detail = (
        f"another event stands at version {token.version} of {token.stream}; repeat with the same token when "
        "an operator has decided between them"
    )
    return Problem(503, "stream_forked", detail, headers={"Retry-After": "30"})


def _lost(token: Token) -> Problem:
    detail = (
        f"version {token.version} of {token.stream} was acknowledged under epoch {token.epoch} by a site "
        "that was lost before it reached this one; another history has begun"
    )
    # Without a token the same address has something else: nobody may keep this response.
    return Problem(410, "lost_in_failover", detail, headers={"Cache-Control": "no-store"})


def key_parked(model: ReadModel[Any], key: str, what: str) -> Problem:
    """Returns a 503 without Retry-After: an operator must decide first."""
    detail = (
        f"{what} waits in {model.name} behind an event that could not be applied; it is in the log, and an "
        f"operator has to decide: `./daybook parked show {model.name}:{key}`"
    )
    return Problem(503, "key_parked", detail)
