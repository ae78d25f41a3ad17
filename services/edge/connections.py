"""What all connections of a server share: how many an address has, and which of them the server waits for.

Belongs to the event loop. A request that comes in one piece leaves no trace here: it needs no timer.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from services.edge.settings import EdgeSettings, Networks

SWEEP_SECONDS = 0.1  # often, so that few expire at once: each is a response that holds up the others
MAX_BUFFERED_BYTES = 64 * 1024 * 1024
MOST_DESCRIPTORS = 65_536
# what the log, the database and files need
RESERVED_DESCRIPTORS = 128


class Waited(Protocol):
    """A connection whose client is slow. `buffered` are the bytes of an unfinished body."""

    buffered: int

    def expired(self) -> None:
        """The client's time is over."""

    def shed(self) -> None:
        """The server needs the room: go at once."""


class Connections:
    """`most` connections are open at once; above that, the client that was waited for the longest goes."""

    def __init__(self, settings: EdgeSettings) -> None:
        self.settings = settings
        self.most = _raised_limit() - RESERVED_DESCRIPTORS
        self._open: Counter[str] = Counter()
        self._buffered = 0
        # in the order in which the waiting began; the time of `asyncio` at which it ends
        self._waiting: dict[Waited, float] = {}
        self._loop: asyncio.AbstractEventLoop
        self._sweep: asyncio.TimerHandle | None = None

    def enter(self, client: str) -> bool:
        """One more connection of this client; false where it has all that it may have."""
        if self._open[client] >= self.settings.connections_per_address:
            return False
        self._open[client] += 1
        return True

    def leave(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def wait(self, connection: Waited, seconds: float) -> None:
        """The client has `seconds` from now on."""
        if self._sweep is None:
            self._loop = asyncio.get_running_loop()
            self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire)
        self._waiting.pop(connection, None)
        self._waiting[connection] = self._loop.time() + seconds

    def settled(self, connection: Waited) -> None:
        """Nothing is awaited of the client any more."""
        self._waiting.pop(connection, None)

    def buffer(self, connection: Waited, size: int) -> None:
        """The unfinished body has so many bytes now. The oldest bodies go where all are too many."""
        self._buffered += size - connection.buffered
        connection.buffered = size
        if self._buffered > MAX_BUFFERED_BYTES:
            for each in [each for each in self._waiting if each.buffered]:
                each.shed()
                if self._buffered <= MAX_BUFFERED_BYTES:
                    return

    def make_room(self, count: int) -> None:
        """`count` connections are open."""
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
    """Whose connections an address counts among: a network of 64 bits for IPv6, which one client has whole;
    None for a trusted proxy. What is no address stands for itself."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    found = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    if any(found in network for network in trusted):
        return None
    return f"{int(found) >> 64:x}::/64" if isinstance(found, IPv6Address) else str(found)


def forwarded_client(chain: str, trusted: Networks) -> str | None:
    """The last address of an `X-Forwarded-For` that is no trusted proxy: those before it may be made up."""
    for address in reversed(chain.split(",")):
        client = client_of(address.strip(), trusted) if address.strip() else None
        if client is not None:
            return client
    return None


def _raised_limit() -> int:
    """How many descriptors this process may have, once it may have all that it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
