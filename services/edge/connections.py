"""Shared by all connections of a server: counts them per address and times out slow clients.

Only the event loop may use it. A request that arrives in one piece costs nothing here: it needs no timer.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from services.edge.settings import EdgeSettings, Networks

SWEEP_SECONDS = 0.1  # Often, so that few expire at once: each expiry is a response that delays the others.
MAX_BUFFERED_BYTES = 64 * 1024 * 1024
MOST_DESCRIPTORS = 65_536
# For the log, the database and files.
RESERVED_DESCRIPTORS = 128


class SlowClient(Protocol):
    """A connection that waits for its client. `buffered`: bytes of an unfinished body."""

    buffered: int

    def expired(self) -> None:
        """The client did not send in time."""

    def shed(self) -> None:
        """The server needs the room: close at once."""


class Connections:
    """Allows `most` open connections; above that, closes the one that has waited for its client the longest."""

    def __init__(self, settings: EdgeSettings) -> None:
        self.settings = settings
        self.most = _raised_limit() - RESERVED_DESCRIPTORS
        self._open: Counter[str] = Counter()
        self._buffered = 0
        # In the order in which the waiting began; the value is the deadline by the event loop's clock.
        self._waiting: dict[SlowClient, float] = {}
        self._loop: asyncio.AbstractEventLoop
        self._sweep: asyncio.TimerHandle | None = None

    def enter(self, client: str) -> bool:
        """Counts one more connection of this client; returns False at its limit."""
        if self._open[client] >= self.settings.connections_per_address:
            return False
        self._open[client] += 1
        return True

    def leave(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def wait(self, connection: SlowClient, seconds: float) -> None:
        """Gives the client `seconds` from now on."""
        if self._sweep is None:
            self._loop = asyncio.get_running_loop()
            self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire)
        self._waiting.pop(connection, None)
        self._waiting[connection] = self._loop.time() + seconds

    def stop_waiting(self, connection: SlowClient) -> None:
        """The server no longer waits for this client."""
        self._waiting.pop(connection, None)

    def buffer(self, connection: SlowClient, size: int) -> None:
        """Records the size of an unfinished body. Sheds the oldest ones if all together are too large."""
        self._buffered += size - connection.buffered
        connection.buffered = size
        if self._buffered > MAX_BUFFERED_BYTES:
            for buffering in [client for client in self._waiting if client.buffered]:
                buffering.shed()
                if self._buffered <= MAX_BUFFERED_BYTES:
                    return

    def make_room(self, count: int) -> None:
        """Closes one connection if `count` open connections are too many."""
        if count > self.most and self._waiting:
            next(iter(self._waiting)).shed()

    def _expire(self) -> None:
        now = self._loop.time()
        for connection, until in list(self._waiting.items()):
            if until <= now:
                connection.expired()
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire) if self._waiting else None


@lru_cache(maxsize=4096)
def client_of(address: str, trusted: Networks) -> str | None:
    """Returns the client that an address counts for; None for a trusted proxy. For IPv6 this is the 64-bit network,
    because one client owns all of it. Text that is no address counts as itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    parsed = (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed
    if any(parsed in network for network in trusted):
        return None
    return f"{int(parsed) >> 64:x}::/64" if isinstance(parsed, IPv6Address) else str(parsed)


def forwarded_client(chain: str, trusted: Networks) -> str | None:
    """Returns the last address in `X-Forwarded-For` that is no trusted proxy; clients can forge earlier ones."""
    for address in reversed(chain.split(",")):
        client = client_of(address.strip(), trusted) if address.strip() else None
        if client is not None:
            return client
    return None


def _raised_limit() -> int:
    """Raises the limit of open files as far as allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit
