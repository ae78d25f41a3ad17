"""The loader: a plan goes through the shop's HTTP APIs, as customers and the warehouse would send it.

Deliveries go first. Then orders are taken in the data's order, several at a time, each one's steps one after
the other. The outcome does not depend on how many are under way.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from infra.lab.retail.plan import LoadPlan
from infra.lab.retail.requests import Api, call
from infra.lab.retail.sender import REQUEST_SECONDS, ApiResponse, Sender
from infra.lab.retail.steps import Step
from infra.lab.retail.tally import Tally

Progress = Callable[[Step, ApiResponse], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """`concurrency`: calls under way at once. `rate`: commands a second at most; None: as fast as it goes."""

    concurrency: int = 64
    rate: float | None = None


async def load(plan: LoadPlan, urls: Mapping[Api, str], pace: Pace, progress: Progress) -> Tally:
    """Send everything. Raises NoResponse where the shop does not answer in time: load again to go on."""
    tally = Tally(order_lines=plan.order_lines)
    started = time.perf_counter()
    async with _session(pace.concurrency) as session:
        sender = Sender(session, urls)
        turn = _Turn(pace.rate)

        async def run(steps: Iterable[Step]) -> None:
            for step in steps:
                await turn.wait()
                request = call(step)
                answer = await sender.send(request)
                tally.add(request, answer)
                progress(step, answer)

        await _side_by_side(pace.concurrency, ((step,) for step in plan.deliveries), run)
        orders_started = time.perf_counter()
        await _side_by_side(pace.concurrency, _lives(plan), run)
    ended = time.perf_counter()
    tally.seconds, tally.order_seconds = ended - started, ended - orders_started
    return tally


def _lives(plan: LoadPlan) -> Iterator[Sequence[Step]]:
    yield from ((step,) for step in plan.adjustments)
    yield from (chain.steps for chain in plan.chains)


async def _side_by_side(
    workers: int, work: Iterator[Sequence[Step]], run: Callable[[Sequence[Step]], Awaitable[None]]
) -> None:
    """Each worker takes the next piece when it is done with its own; the first error ends all."""

    async def take() -> None:
        for steps in work:
            await run(steps)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(take())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


class _Turn:
    """Spaces commands evenly, where a rate is asked for."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = time.perf_counter()

    async def wait(self) -> None:
        if self._gap:
            self._next = max(self._next + self._gap, time.perf_counter())
            await asyncio.sleep(self._next - time.perf_counter())


@asynccontextmanager
async def _session(connections: int) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, connect=5)
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield session
