"""A lean HTTP client in a process of its own: `python -m tests.bench.generator`, a `Load` as JSON on stdin.

Closed loop: each connection sends its next request when it has the response. Open loop (`rate`): requests are
due at even times whatever the responses do, and wait for a free connection; their time counts from when due.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import uvloop

from infra.identity.caller import Caller
from tests.bench.statistics import quantile

PATIENCE_SECONDS = 15.0


@dataclass(frozen=True)
class Load:
    """What to send: `kind` names one of `REQUESTS`, `prefix` makes its ids new; seconds; `rate` 0: closed.

    The first `warm` seconds are not counted. `most` requests are sent (0: as many as fit). `keep` returns
    each request's id and the time of its response. `authorization` is that header's value.
    """

    port: int
    kind: str
    prefix: str
    connections: int
    seconds: float
    warm: float = 0.5
    rate: float = 0.0
    keep: bool = False
    most: int = 0
    authorization: str = ""


@dataclass(frozen=True)
class Loaded:
    """The rate of 2xx responses per second, the count of others, times in ms, and the cores the generator used.

    `acknowledged`: id → `time.perf_counter()` of its 2xx response (one clock for all processes), with `keep` only.
    """

    rate: float
    refused: int
    p50: float
    p99: float
    cores: float
    acknowledged: Mapping[str, float]


def send(load: Load) -> Loaded:
    """Run a generator until it is done. Without `authorization` it sends what DAYBOOK_AUTH says, or none."""
    header = load.authorization or Caller().headers().get("Authorization", "")
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.generator"],
        input=json.dumps(asdict(replace(load, authorization=header))),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=load.warm + load.seconds + 4 * PATIENCE_SECONDS,
    )
    return Loaded(**json.loads(done.stdout))


def post(path: str, body: bytes) -> bytes:
    """An HTTP request with headers and body."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    return head.encode() + b"%d\r\n\r\n" % len(body) + body


def page(_: str, number: int) -> bytes:
    """Read the newest orders."""
    return b"GET /orders?limit=%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % (1 + number % 10)


def small_order(name: str, number: int) -> bytes:
    """An order of two lines, of 500 SKUs."""
    body = (
        b'{"order_id":"%s","customer_id":"c-%d","country":"United Kingdom","currency":"GBP","lines":['
        b'{"sku":"sku-%d","quantity":2,"unit_price":"2.55"},{"sku":"sku-%d","quantity":1,"unit_price":"10.95"}]}'
    )
    return post("/orders", body % (name.encode(), number % 1000, number * 7 % 500, (number * 7 + 250) % 500))


def own_order(name: str, number: int) -> bytes:
    """An order of one line, for whom the token names."""
    line = b'{"sku":"sku-%d","quantity":1,"unit_price":"2.55"}' % (number % 500)
    body = b'{"order_id":"%s","country":"Portugal","currency":"EUR","lines":[%s]}'
    return post("/orders", body % (name.encode(), line))


def receipt(_: str, number: int) -> bytes:
    """Plenty of one of the 5,000 SKUs that orders and adjustments name."""
    return post(f"/stock/sku-{number % 5000}/receipts", b'{"quantity":1000000,"reference":"opening"}')


def fixed_order(_: str, number: int) -> bytes:
    """Cancel one of 20,000 fixed orders: nothing changes once all are cancelled."""
    name = f"fixed-{number % 20_000}"
    return post(f"/orders/{name}/cancellation", b'{"reason":"changed mind"}')


def first_order(_: str, number: int) -> bytes:
    """Place the 20,000 orders that `fixed_order` cancels."""
    return small_order(f"fixed-{number % 20_000}", number)


def adjustment(_: str, number: int) -> bytes:
    """Add one unit, then remove one, of each of 5,000 SKUs."""
    quantity = 1 if number // 5000 % 2 == 0 else -1
    return post(f"/stock/sku-{number % 5000}/adjustments", b'{"quantity":%d,"reason":"count"}' % quantity)


REQUESTS: Mapping[str, Callable[[str, int], bytes]] = {
    "page": page,
    "small_order": small_order,
    "own_order": own_order,
    "receipt": receipt,
    "first_order": first_order,
    "fixed_order": fixed_order,
    "adjustment": adjustment,
}


class Run:
    """One running load and its counts."""

    def __init__(self, load: Load) -> None:
        self._load, self._build = load, REQUESTS[load.kind]
        self._header = (
            f"\r\nAuthorization: {load.authorization}\r\n".encode() if load.authorization else b"\r\n"
        )
        self._sent = 0
        self._started = time.perf_counter()
        self._counts_from = self._started + load.warm
        self.ends = self._counts_from + load.seconds
        self.times: list[float] = []
        self.refused = 0
        self.acknowledged: dict[str, float] = {}
        self.idle: deque[Connection] = deque()
        self.due: deque[float] = deque()

    def next(self, connection: Connection) -> None:
        """Give a free connection its next request, or mark it idle."""
        now = time.perf_counter()
        if self._load.rate:
            if self.due:
                self._send(connection, self.due.popleft())
            else:
                self.idle.append(connection)
        elif now < self.ends and not self.exhausted:
            self._send(connection, now)

    def _send(self, connection: Connection, began: float) -> None:
        number, self._sent = self._sent, self._sent + 1
        name = f"{self._load.prefix}-{number}"
        request = self._build(name, number).replace(b"\r\n", self._header, 1)
        connection.send(request, name, began)

    @property
    def exhausted(self) -> bool:
        """Whether the allowed number of requests is sent."""
        return 0 < self._load.most <= self._sent

    def received(self, name: str, began: float, status: int) -> None:
        now = time.perf_counter()
        if not 200 <= status < 300:
            self.refused += 1
        elif self._counts_from <= now <= self.ends:
            self.times.append(now - began)
            if self._load.keep:
                self.acknowledged[name] = now

    async def pace(self) -> None:
        """The open loop's clock."""
        gap, due = 1 / self._load.rate, self._started
        while due < self.ends:
            while due <= time.perf_counter():
                self.due.append(due)
                due += gap
            while self.due and self.idle:
                self._send(self.idle.popleft(), self.due.popleft())
            await asyncio.sleep(min(0.002, max(0.0, due - time.perf_counter())))


class Connection(asyncio.Protocol):
    """Just enough HTTP/1.1: one request at a time, responses with a Content-Length."""

    def __init__(self, run: Run) -> None:
        self._run, self._response = run, b""
        self._request: tuple[str, float] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._run.next(self)

    def send(self, request: bytes, name: str, began: float) -> None:
        self._request = name, began
        self._transport.write(request)

    @property
    def waiting(self) -> bool:
        return self._request is not None

    def data_received(self, data: bytes) -> None:
        response = self._response = self._response + data if self._response else data
        head = response.find(b"\r\n\r\n")
        if head < 0:
            return
        at = response.lower().find(b"content-length:", 0, head) + len(b"content-length:")
        if len(response) < head + 4 + int(response[at : response.find(b"\r", at)]):
            return
        assert self._request is not None, "a response without a request"
        (name, began), self._request, self._response = self._request, None, b""
        self._run.received(name, began, int(response[9:12]))
        self._run.next(self)

    def connection_lost(self, _: Exception | None) -> None:
        if self._request is not None:
            self._run.refused += 1
            self._request = None


async def run(load: Load) -> Loaded:
    """Run the whole load. Waits for missing responses for PATIENCE_SECONDS."""
    loop, state, used = asyncio.get_running_loop(), Run(load), time.process_time()
    connections = [
        (await loop.create_connection(lambda: Connection(state), "127.0.0.1", load.port))[1]
        for _ in range(load.connections)
    ]
    if load.rate:
        await state.pace()
    else:
        while time.perf_counter() < state.ends and not state.exhausted:
            await asyncio.sleep(0.02)
    cores = (time.process_time() - used) / (load.warm + load.seconds)
    until = time.perf_counter() + PATIENCE_SECONDS
    while any(connection.waiting for connection in connections) and time.perf_counter() < until:
        await asyncio.sleep(0.01)
    times = state.times or [float("nan")]
    return Loaded(
        rate=len(state.times) / load.seconds,
        refused=state.refused,
        p50=quantile(times, 0.50) * 1000,
        p99=quantile(times, 0.99) * 1000,
        cores=round(cores, 3),
        acknowledged=state.acknowledged,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(run(Load(**json.load(sys.stdin)))))))
