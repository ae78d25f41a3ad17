"""`wait_until` for coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from infra.base.waiting import POLL_SECONDS, TooLate

Seen = TypeVar("Seen")


async def wait_until_async(
    look: Callable[[], Awaitable[Seen]],
    what: str | Callable[[], str],
    seconds: float,
    *,
    enough: Callable[[Seen], object] = bool,
    later: tuple[type[Exception], ...] = (),
    every: float = POLL_SECONDS,
    error: Callable[[TooLate], Exception] = lambda late: late,
) -> Seen:
    """`wait_until` for a coroutine; other tasks run while it waits."""
    deadline = time.monotonic() + seconds
    last: Any
    reason: Exception | None
    while True:
        try:
            last, reason = (seen := await look()), None
            if enough(seen):
                return seen
        except later as not_yet:
            last = reason = not_yet
        if time.monotonic() > deadline:
            raise error(TooLate(what if isinstance(what, str) else what(), seconds, last)) from reason
        await asyncio.sleep(every)
