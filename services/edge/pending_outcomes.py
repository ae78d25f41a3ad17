"""Requests that wait for an outcome. Only the event loop may use it: no other thread may call it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from contracts.kernel.records import Outcome
from services.edge.unavailable import OutcomeUnknown, Unavailable

OutcomeKey: TypeAlias = tuple[str, str]
"""Command id and request hash: requests with the same key get the same outcome."""


class Waiter(NamedTuple):
    """`deadline`: by `time.monotonic()`."""

    deadline: float
    outcome: asyncio.Future[Outcome]


class PendingOutcomes:
    """Waiting requests, each with the same timeout in seconds. `expire` checks all of them now and then: a timer for
    each would cost more."""

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
