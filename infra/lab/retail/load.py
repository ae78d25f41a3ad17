"""The loader: sends a plan through the shop's HTTP APIs as customers and the warehouse would, and measures it.

Deliveries go first. Then orders are taken in the data's order, several at a time, each one's steps one after another.
The outcome does not depend on how many are under way.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from infra.lab.load.clients import Client, CommandResponse, Pace, Urls, send_all, session
from infra.lab.retail.plan import LoadPlan
from infra.lab.retail.steps import Step, request_of

REQUEST_SECONDS = 30.0
SITE = "home"


@dataclass(frozen=True, slots=True)
class KindTally:
    """The commands of one kind; times in seconds, from the first attempt to the outcome."""

    kind: str
    commands: int
    acknowledged: int
    refused: int
    replayed: int
    repeated: int
    p50: float
    p99: float


@dataclass(slots=True)
class Tally:
    """What a load measured. `seconds` is the time of the whole load, `order_seconds` that of the orders' part."""

    refused: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    order_seconds: float = 0.0
    order_lines: int = 0
    _responses: dict[str, list[CommandResponse]] = field(default_factory=dict)

    def add(self, response: CommandResponse) -> None:
        self._responses.setdefault(response.kind, []).append(response)
        if not response.accepted:
            self.refused[response.outcome] += 1
        elif response.kind == "order":
            self.statuses[response.status] += 1

    def kinds(self) -> Sequence[KindTally]:
        """One row per kind of command, in the order in which they were first sent."""
        return [_kind(kind, responses) for kind, responses in self._responses.items()]

    def total(self) -> KindTally:
        """All commands together."""
        return _kind("all", [response for kind in self._responses.values() for response in kind])

    @property
    def lines_per_second(self) -> float:
        """Settled order lines per second; meanwhile orders are also shipped and returned."""
        return self.order_lines / self.order_seconds if self.order_seconds else 0.0

    @property
    def commands_per_second(self) -> float:
        return self.total().commands / self.seconds if self.seconds else 0.0


def _kind(kind: str, responses: Sequence[CommandResponse]) -> KindTally:
    times = sorted(response.seconds for response in responses)
    refused = sum(not response.accepted for response in responses)
    return KindTally(
        kind=kind,
        commands=len(responses),
        acknowledged=len(responses) - refused,
        refused=refused,
        replayed=sum(response.replayed for response in responses),
        repeated=sum(response.repeats for response in responses),
        p50=_quantile(times, 50),
        p99=_quantile(times, 99),
    )


def _quantile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many percent do not exceed; 0 of nothing."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)] if ordered else 0.0


async def load(
    plan: LoadPlan,
    urls: Urls,
    concurrency: int,
    rate: float | None,
    progress: Callable[[Step, CommandResponse], None],
) -> Tally:
    """Send everything, at most `rate` commands per second. Raises NoResponse: the same load then continues."""
    tally = Tally(order_lines=plan.order_lines)
    started = time.perf_counter()
    async with session(concurrency, REQUEST_SECONDS) as http:
        client, pace = Client(http, {SITE: urls}, SITE), Pace(rate)

        async def send(step: Step) -> None:
            response = await client.send(request_of(step))
            tally.add(response)
            progress(step, response)

        await send_all(((step,) for step in plan.deliveries), send, concurrency, pace)
        orders_started = time.perf_counter()
        await send_all(plan.lives(), send, concurrency, pace)
    ended = time.perf_counter()
    tally.seconds, tally.order_seconds = ended - started, ended - orders_started
    return tally
