"""Keys of read models that wait behind an event that could not be applied. Written `<read model>:<key>`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from services.projection.engine.database import prepare
from services.projection.engine.parked_keys import (
    NothingParked,
    ParkedEvent,
    ParkedKey,
    RetryResult,
    parked_keys,
    retry,
    show,
    skip,
)
from services.projection.engine.read_model import Connection, ReadModel
from services.projection.read_models import READ_MODELS

Result = TypeVar("Result")


def keys(url: str) -> list[ParkedKey]:
    """All parked keys. Raises OSError or asyncpg.PostgresError where the database does not answer."""
    return asked(url, parked_keys)


def events_of(url: str, position: str) -> list[ParkedEvent]:
    """What is parked for one key, in order. Raises `NothingParked`."""
    model, key = _locate(position)
    return asked(url, lambda connection: show(connection, model.name, key))


def retry_key(url: str, position: str) -> RetryResult:
    """Apply what is parked, up to the first event that still cannot be. Raises `NothingParked`."""
    model, key = _locate(position)
    return asked(url, lambda connection: retry(connection, model, key))


def skip_first(url: str, position: str, reason: str) -> RetryResult:
    """Leave the key's first parked event out for good and apply those behind it. Raises `NothingParked`."""
    model, key = _locate(position)
    return asked(url, lambda connection: skip(connection, model, key, reason))


def _locate(position: str) -> tuple[ReadModel[Any], str]:
    name, _, key = position.partition(":")
    for model in READ_MODELS:
        if model.name == name:
            return model, key
    raise NothingParked(f"there is no read model {name}")


def asked(url: str, ask: Callable[[Connection], Awaitable[Result]]) -> Result:
    """What `ask` returns, given a connection. Raises OSError or asyncpg.PostgresError."""

    async def answered() -> Result:
        connection = await asyncpg.connect(url)
        try:
            await prepare(connection)
            return await ask(connection)
        finally:
            await connection.close()

    return asyncio.run(answered())
