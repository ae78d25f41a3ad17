"""Who waits for which outcome. Belongs to the event loop: nothing here may be called from another thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from contracts.kernel.records import Outcome
from services.edge.unavailable import OutcomeUnknown, Unanswered

Awaited: TypeAlias = tuple[str, str]
"""A command id and a request's hash: requests under the same two get the same answer."""


class Waiter(NamedTuple):
    """`until` by `time.monotonic()`."""

    until: float
    outcome: asyncio.Future[Outcome]


class Waiting:
    """Requests and their patience, in seconds. A timer for each would cost more than looking at all of them
    now and then: see `expire`."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._waiters: dict[Awaited, list[Waiter]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, awaited: Awaited) -> Waiter:
        """A waiter whose future will have the outcome, or raise an `Unanswered`; `remove` it in the end."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        waiter = Waiter(time.monotonic() + self._patience, future)
        self._waiters.setdefault(awaited, []).append(waiter)
        self._count += 1
        return waiter

    def remove(self, awaited: Awaited, waiter: Waiter) -> None:
        self._count -= 1
        waiters = self._waiters.get(awaited)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[awaited]

    def resolve(self, outcomes: Iterable[Outcome]) -> None:
        """Give each outcome to all who wait for it."""
        for outcome in outcomes:
            for waiter in self._waiters.pop((outcome.command_id, outcome.request_hash), ()):
                if not waiter.outcome.done():
                    waiter.outcome.set_result(outcome)

    def expire(self) -> None:
        """Fail those whose patience is over."""
        now = time.monotonic()
        for waiter in self._all():
            if waiter.until <= now:
                fail(waiter, OutcomeUnknown(f"no outcome within {self._patience:g} s"))

    def fail_all(self, reason: str) -> None:
        for waiter in self._all():
            fail(waiter, OutcomeUnknown(reason))

    def _all(self) -> list[Waiter]:
        return [waiter for waiters in self._waiters.values() for waiter in waiters]


def fail(waiter: Waiter, error: Unanswered) -> None:
    """Unless it has been answered or has failed before."""
    if not waiter.outcome.done():
        waiter.outcome.set_exception(error)
