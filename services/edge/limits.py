"""How much one caller may ask of an API process: requests per second, and commands in progress.

Both are kept in memory, by the token's subject. Without tokens nobody is known, and these limits do not apply.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, inf
from random import uniform

from starlette.requests import Request
from starlette.types import Scope

from services.edge.identity import ANYONE, Principal
from services.edge.problems import Code, Problem
from services.edge.settings import LimitSettings

MAX_BUCKETS = 10_000
# Until a caller above its rate gets its 429: at random, else all connections of a caller would return together.
REFUSAL_SECONDS = 0.5, 1.5
_HEADERS = "rate_headers"

RATE_LIMITED = {"rate_limited": Code(429, "the caller sends too many requests; repeat after `Retry-After`")}
TOO_MANY_PENDING = {
    "too_many_pending": Code(429, "the caller has too many commands in progress; it was not sent")
}


@dataclass(slots=True)
class Bucket:
    """What a caller may still send: at most `size` requests at once, `rate` more each second."""

    rate: float
    size: float
    left: float
    at: float

    def take(self, now: float) -> float:
        """Takes one request. Returns 0, or the seconds until there is one."""
        self.left, self.at = min(self.size, self.left + self.rate * (now - self.at)), now
        if self.left < 1:
            return (1 - self.left) / self.rate
        self.left -= 1
        return 0.0


class Limits:
    """The limits of all callers of one process. `max_pending`: how many commands may be in progress."""

    def __init__(self, settings: LimitSettings, max_pending: float = inf) -> None:
        self._rates = {True: settings.requests_per_second, False: settings.staff_requests_per_second}
        self._seconds = settings.burst_seconds
        self._max_pending = max_pending
        self._buckets: dict[tuple[str, float], Bucket] = {}
        self._pending: Counter[str] = Counter()
        self._total = 0

    async def admit(self, request: Request, principal: Principal) -> None:
        """Counts a request. Raises `Problem` 429, late: a refusal costs time, too, and whoever repeats at once would
        take it from the others. Either way `rate_headers` says what is left."""
        rate = self._rates[principal.only_customer]
        if not rate or principal is ANYONE:
            return
        bucket, now = self._bucket(principal.subject, rate), time.monotonic()
        wait = bucket.take(now)
        refilled = ceil((bucket.size - bucket.left) / rate)
        request.scope["state"][_HEADERS] = (
            (b"ratelimit-policy", b'"caller";q=%d;w=%d' % (bucket.size, ceil(bucket.size / rate))),
            (b"ratelimit", b'"caller";r=%d;t=%d' % (bucket.left, refilled)),
        )
        if wait:
            await asyncio.sleep(uniform(*REFUSAL_SECONDS))
            headers = {"Retry-After": str(ceil(wait))}
            raise Problem(429, "rate_limited", f"at most {rate:g} requests per second", headers=headers)

    def _bucket(self, subject: str, rate: float) -> Bucket:
        """Forgets all callers when there are too many: each then begins with a full bucket."""
        key = subject, rate
        if key not in self._buckets:
            if len(self._buckets) >= MAX_BUCKETS:
                self._buckets.clear()
            size = max(1.0, rate * self._seconds)
            self._buckets[key] = Bucket(rate, size, size, time.monotonic())
        return self._buckets[key]

    @contextmanager
    def in_progress(self, principal: Principal) -> Iterator[None]:
        """Counts a command until it has its response. Raises `Problem` 429 where the caller has as many in progress as
        are left for all others: one alone gets half of them, and leaves the other half."""
        subject = principal.subject
        if self._pending[subject] >= self._max_pending - self._total and principal is not ANYONE:
            detail = f"{self._pending[subject]} commands of this caller wait for their outcome"
            raise Problem(429, "too_many_pending", detail, headers={"Retry-After": "1"})
        self._pending[subject] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._pending[subject] -= 1
            if not self._pending[subject]:
                del self._pending[subject]


def rate_headers(scope: Scope) -> Iterable[tuple[bytes, bytes]]:
    """What the caller may still send (draft-ietf-httpapi-ratelimit-headers)."""
    headers: Iterable[tuple[bytes, bytes]] = scope["state"].get(_HEADERS, ())
    return headers
