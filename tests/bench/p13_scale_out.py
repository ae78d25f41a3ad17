"""P13: what the next slot gives: 1, 2 and 4 slots on as many partitions, each with a broker of its own.

Settled order lines of the real input over HTTP: what a shop gets, whose API, loader and broker compete with its slots
for the cores of one machine. Then the decide loop with the commands ready in the topic: neither an API nor a loader
limits it, so it shows what slots give. All environments stand beside each other and measure in turn. What those that
wait and all other programs of the machine take is in the table too (`cpu all else`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path

from contracts.topics import TOPICS
from infra.lab.load.clients import Api, Urls
from infra.lab.retail.invoices import entries, read_rows
from infra.lab.retail.load import load
from infra.lab.retail.plan import LoadPlan, Period, read_book
from infra.log.control import change_layout
from services.kernel.log.reader import high_watermarks
from tests.bench import bulk
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.bench.machine import busy_seconds
from tests.bench.picture import Panel, draw
from tests.bench.rig import Cores, Rig
from tests.bench.scaling import REST, points, sentences
from tests.bench.subjects.work_process import WorkProcess
from tests.bench.whole import await_rest

SLOTS = {"4 slots": 4, "2 slots": 2, "1 slot": 1}
SERVICES = ("order", "inventory")
FIRST = date(2010, 12, 1)
WARM_DAYS, QUICK_WARM_DAYS, WINDOW_DAYS = 45, 7, 10
CLIENTS = 256
RATE = 8_000  # commands of a window of one second
SNAPSHOT_SECONDS = 2.0
NOTICED = 0.005  # cores
PICTURE = Path("build/scale-out.svg")


class Environment:
    """A broker with as many partitions as slots, and on it either a shop or decide loops."""

    def __init__(self, slots: int, stack: ExitStack) -> None:
        self.slots = slots
        self.rig = stack.enter_context(Rig(postgres=False, partitions=slots))
        self._layouts = {
            service: change_layout(self.rig.kafka, service, slots).number if slots > 1 else 1
            for service in SERVICES
        }
        self._loops: list[WorkProcess] = []
        self._counts: list[int] = []

    def start_shop(self) -> None:
        """The workers of every slot and the two APIs that write; nothing that only reads."""
        for service, slot in itertools.product(SERVICES, range(self.slots)):
            self.rig.start(
                f"{service}-worker-slot-{slot}",
                f"services.{service}.service",
                "worker",
                slot=slot,
            )
        self.rig.await_ready()
        for service in SERVICES:
            self.rig.shop(f"{service}-api")
        self.rig.await_ready()

    def stop_shop(self) -> None:
        for part in self.rig.parts.values():
            part.stop()
        self.rig.parts.clear()

    def settle(self, plan: LoadPlan) -> Window:
        """One window: the whole plan; the figure is its settled order lines a second."""
        written = {api: self.rig.parts[f"{api}-api"].url for api in (Api.ORDER, Api.INVENTORY)}
        # Nothing here reads: whoever asks for an order learns no more than that it was placed.
        urls = Urls({**written, Api.QUERY: written[Api.ORDER]}, self.rig.caller)
        cores = self._cores({})
        tally = asyncio.run(load(plan, urls, CLIENTS, None, lambda *_: None))
        taken = cores()
        if not tally.statuses["confirmed"]:
            raise Unmeasurable(f"nothing was confirmed; refused: {dict(tally.refused)}")
        await_rest(self.rig)
        return Window(tally.lines_per_second, taken)

    def start_loops(self, stack: ExitStack) -> None:
        for slot in range(self.slots):
            arguments = (str(SNAPSHOT_SECONDS), str(slot), str(self._layouts["order"]), str(self.slots))
            loop = WorkProcess(
                f"slot {slot}",
                self.rig.folder / f"loop-{slot}.log",
                "tests.bench.subjects.decide_loop",
                *("order", self.rig.kafka, *arguments),
            )
            self._loops.append(stack.enter_context(loop))

    def prepare(self, count: int, first: int) -> None:
        """Put so many orders of two lines into the topic. Each partition is of one slot."""
        topic, partitions = TOPICS["order"].commands, list(range(self.slots))
        before = high_watermarks(self.rig.kafka, topic, partitions)
        bulk.put_commands(self.rig.kafka, "order", bulk.commands("small", count, first))
        after = high_watermarks(self.rig.kafka, topic, partitions)
        self._counts = [after[partition] - before[partition] for partition in partitions]

    def decide(self) -> Window:
        """One window: all that was put; it ends when the last slot is done."""
        cores = self._cores({f"slot {number}": loop.pid for number, loop in enumerate(self._loops)})
        for loop, count in zip(self._loops, self._counts, strict=True):
            loop.begin(count)
        rates = [loop.end().figure for loop in self._loops]
        taken = cores()
        for loop in self._loops:
            loop.complete()
        seconds = max(count / rate for count, rate in zip(self._counts, rates, strict=True))
        return Window(sum(self._counts) / seconds, taken)

    def _cores(self, more: Mapping[str, int]) -> Callable[[], dict[str, float]]:
        """Begin to measure; call it to end. `more` are processes by name that the rig does not know."""
        cores, busy = Cores(self.rig, more), busy_seconds()
        began, loader = time.perf_counter(), time.process_time()

        def taken() -> dict[str, float]:
            passed = time.perf_counter() - began
            mine, all_programs = (time.process_time() - loader) / passed, (busy_seconds() - busy) / passed
            own = {**cores.taken(), "cpu loader": mine}
            own[REST] = max(0.0, all_programs - sum(own.values()))
            return {name: round(used, 3) for name, used in own.items() if used >= NOTICED}

        return taken


def run(effort: Effort, say: Say) -> list[Measured]:
    with ExitStack() as stack:
        environments = {name: Environment(slots, stack) for name, slots in SLOTS.items()}
        rows = [_lines(environments, effort, say), _commands(environments, effort, say)]
    cores, panels = os.cpu_count() or 1, []
    for row in rows:
        scale = points(row, SLOTS)
        row.notes += sentences(scale, row.unit, cores)
        panels.append(Panel(row.what, row.unit, scale))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(panels, cores), "utf-8")
    rows[-1].notes.append(f"picture: {PICTURE}")
    return rows


def _lines(environments: Mapping[str, Environment], effort: Effort, say: Say) -> Measured:
    """Every environment settles the same days of the real input in each round; they also warm its broker."""
    say("reading the invoices")
    plans, plan = _plans(effort), LoadPlan((), (), (), ())

    def next_days() -> None:
        nonlocal plan
        plan = next(plans)

    for environment in environments.values():
        environment.start_shop()
    contenders = [
        Contender(name, lambda environment=environment: environment.settle(plan))  # type: ignore[misc]
        for name, environment in environments.items()
    ]
    windows = interleave(contenders, effort.windows, say, before=next_days)
    for environment in environments.values():
        environment.stop_shop()
    return Measured("the real input over HTTP", "settled lines/s", windows)


def _plans(effort: Effort) -> Iterator[LoadPlan]:
    """Some weeks to warm everything, then a window's days each."""
    book, first = read_book(entries(read_rows())), FIRST
    days = QUICK_WARM_DAYS if effort.quick else WARM_DAYS
    while True:
        last = first + timedelta(days=days - 1)
        yield book.load(Period(first, last, FIRST))
        first, days = last + timedelta(days=1), WINDOW_DAYS


def _commands(environments: Mapping[str, Environment], effort: Effort, say: Say) -> Measured:
    count, numbers = int(RATE * effort.seconds), itertools.count()

    def prepare() -> None:
        first = next(numbers) * count
        for environment in environments.values():
            environment.prepare(count, first)

    with ExitStack() as stack:
        for environment in environments.values():
            environment.start_loops(stack)
        contenders = [Contender(name, environment.decide) for name, environment in environments.items()]
        windows = interleave(contenders, effort.windows, say, before=prepare)
    return Measured("decide loop, orders of 2 lines", "commands/s", windows)
