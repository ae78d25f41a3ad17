"""Five thousand hostile connections, from 127.0.0.2 and up: `python -m tests.hostile.crowd PORT`.

Loopback only. It prints `all there` after it has tried every connection, and opens a closed connection again
after five seconds. It ends when its input ends, or after a minute, and prints its counts as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import uvloop

CONNECTIONS = 5000
# one address opens more connections than its limit; the others share the rest
CROWDED, CROWD = "127.0.0.2", 600
ADDRESSES = 44
RAMP_SECONDS = 5.0
MOST_SECONDS = 60.0
AGAIN_SECONDS = 5.0
TICK_SECONDS, PARTS = 1.0, 100
PART = b"x" * 65_536
MOST_SENT = 32 * 1024 * 1024

HEAD = b"POST /orders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODY = b'{"country":"France"'
WHOLE = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

# what a connection begins with, and what it sends at each tick
KINDS: Mapping[str, tuple[bytes, bytes]] = {
    "silent": (b"", b""),
    "slow head": (b"POST /orders HTTP/1.1\r\nX-Slow: ", b"x"),
    "slow body": (HEAD + b"Content-Length: 1000000\r\n\r\n" + BODY, b" "),
    "slow chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "idle": (WHOLE, b""),
    "large half": (HEAD + b"Content-Length: 1000000\r\n\r\n" + PART * 8, b""),
    "endless head": (b"GET / HTTP/1.1\r\nX-Long: ", PART),
    "endless body": (HEAD + b"Content-Length: 99999999999\r\n\r\n", PART),
    "garbage": (b"\x16\x03\x01" + PART[:1000], b""),
    "reads nothing": (LARGE, b""),
    "many at once": (WHOLE * 200, b""),
}
# of a hundred connections; kinds that send much are rare, because all share one machine here
SHARES = {"slow head": 36, "slow body": 25, "slow chunks": 10, "silent": 13, "idle": 10} | dict.fromkeys(
    ("large half", "endless head", "endless body", "garbage", "reads nothing", "many at once"), 1
)


class Hostile(asyncio.Protocol):
    """One connection. It is in `opened` while it is open; `again` is called after the server has closed it."""

    def __init__(
        self, kind: str, counts: Counter[str], opened: set[Hostile], again: Callable[[], None]
    ) -> None:
        self._kind, self._counts, self._opened, self._again = kind, counts, opened, again
        self._sent, self._writable = 0, True

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._opened.add(self)
        if self._kind == "reads nothing":
            transport.pause_reading()
        transport.write(KINDS[self._kind][0])

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 "):
            self._counts[f"{self._kind}: {data[9:12].decode()}"] += 1

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if KINDS[self._kind][1] is PART:
            self.tick()

    def connection_lost(self, _: Exception | None) -> None:
        self._counts[f"{self._kind}: closed"] += 1
        self._opened.discard(self)
        self._again()

    def tick(self) -> None:
        """Sends the next part; a kind that sends without end sends as much as the server accepts."""
        more = KINDS[self._kind][1]
        while more and self._writable and self._sent < MOST_SENT and not self._transport.is_closing():
            self._transport.write(more)
            self._sent += len(more)
            if more is not PART:
                return


class Crowd:
    """All hostile connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._opened: set[Hostile] = set()
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), stop.set)
        loop.call_later(MOST_SECONDS, stop.set)
        for number in range(CONNECTIONS):
            self._open_in(RAMP_SECONDS * number / CONNECTIONS, number)
        await asyncio.sleep(RAMP_SECONDS + 1)
        print("all there", flush=True)
        while not stop.is_set():
            self.counts["most open"] = max(self.counts["most open"], len(self._opened))
            opened = list(self._opened)
            # they stand for separate machines, which do not send at the same instant
            for part in range(PARTS):
                for connection in opened[part::PARTS]:
                    connection.tick()
                await asyncio.sleep(TICK_SECONDS / PARTS)

    def _open_in(self, seconds: float, number: int) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, lambda: loop.create_task(self._open(number)))

    async def _open(self, number: int) -> None:
        def again() -> None:
            self._open_in(AGAIN_SECONDS, number)

        source = CROWDED if number < CROWD else f"127.0.0.{3 + number % ADDRESSES}"
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: Hostile(kind_of(number), self.counts, self._opened, again),
                "127.0.0.1",
                self._port,
                local_addr=(source, 0),
            )
        except OSError as error:
            self.counts[type(error).__name__] += 1
            again()


def kind_of(number: int) -> str:
    remainder = number % 100
    for kind, share in SHARES.items():
        if remainder < share:
            return kind
        remainder -= share
    raise AssertionError("the shares are less than a hundred")


def main(port: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 100:
        sys.exit(f"{CONNECTIONS} connections need more file descriptors than this user's hard limit, {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(port)
    uvloop.run(crowd.run())
    print(json.dumps(crowd.counts))


if __name__ == "__main__":
    main(int(sys.argv[1]))
