"""A connection for notifications that is silently gone is noticed, and replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest

from services.projection import api
from services.projection.engine import visibility
from services.projection.engine.visibility import Notifications


@pytest.mark.parametrize("error", [TimeoutError, asyncpg.InternalClientError])
async def test_a_connection_without_a_response_is_replaced(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that dropped it says nothing; the tables are looked at from time to time. A statement between the
    server's last message and the end of the connection raises asyncpg's internal error."""
    opened, third = list[int](), asyncio.Event()

    @asynccontextmanager
    async def listening(*_: object) -> AsyncIterator[tuple[int, asyncio.Event]]:
        opened.append(len(opened) + 1)
        if len(opened) == 3:
            third.set()
        yield opened[-1], asyncio.Event()

    looks = list[int]()

    async def look(connection: int, _: object) -> None:
        looks.append(connection)
        if looks.count(connection) == 2:
            raise error

    monkeypatch.setattr(visibility, "_listening", listening)
    monkeypatch.setattr(visibility, "require_own_tables", look)
    monkeypatch.setattr(visibility, "QUERY_SECONDS", 0.01)
    monkeypatch.setattr(visibility, "RECONNECT_SECONDS", 0.0)
    listener = asyncio.create_task(Notifications().listen("postgresql://nowhere"))
    try:
        await asyncio.wait_for(third.wait(), 5)
    finally:
        listener.cancel()
        with suppress(asyncio.CancelledError):
            await listener
    assert looks[:4] == [1, 1, 2, 2]


async def test_a_loop_that_fails_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[str]()
    monkeypatch.setattr(api, "end_process", ended.append)

    async def fails() -> None:
        raise ZeroDivisionError

    async def goes_on() -> None:
        await asyncio.Event().wait()

    failing, going = [api._watched(loop) for loop in (fails(), goes_on())]
    await asyncio.sleep(0)
    going.cancel()
    await asyncio.wait([failing, going])
    await asyncio.sleep(0)
    assert len(ended) == 1
    assert "fails" in ended[0]
