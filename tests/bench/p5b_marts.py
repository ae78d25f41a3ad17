"""P5B: all marts of a large lake, made anew and brought up to date after 1,000 orders; time and memory."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from analytics.jobs.marts import Selection, publish
from analytics.lake.tables import read_commits
from analytics.lake.writer import update
from analytics.marts.catalogue import MARTS
from infra.base.background import Background
from tests.bench import bulk
from tests.bench.harness import Contender, Effort, Measured, Say, Window, interleave
from tests.bench.p5_replay import PER_TRANSACTION, spark_jvm, spark_of
from tests.bench.rig import Rig

EVENTS_PER_ORDER = 8
ORDERS, QUICK_ORDERS = int(os.environ.get("DAYBOOK_BENCH_ORDERS", "250000")), 12_500
MORE_ORDERS = 1_000
WINDOWS = 3
OURS, ANEW = "what has changed", "made anew"
SAMPLE_SECONDS = 1.0


def run(effort: Effort, say: Say) -> list[Measured]:
    """The marts of the lake; then in turns, after 1,000 orders each, brought up to date and made anew."""
    orders = QUICK_ORDERS if effort.quick else ORDERS
    events = orders * EVENTS_PER_ORDER
    with Rig(postgres=False) as rig, spark_of(rig) as session, TreeMemory(spark_jvm().pid) as memory:
        shop = _Shop(rig, session)
        shop.grow(orders)
        say(f"{events:,} events in the log")
        copied = {"the lake's update": [Window(events / _timed(shop.copy))]}
        first = {"13 marts": [Window(events / _timed(shop.publish))]}
        say(f"13 marts: {first['13 marts'][0].figure:,.0f} events/s")
        contenders = (Contender(OURS, shop.follow), Contender(ANEW, shop.make_anew))
        windows = interleave(
            contenders, effort.windows if effort.quick else WINDOWS, say, before=shop.grow_on
        )
    fresh = Measured(
        f"13 marts after {MORE_ORDERS:,} orders, {events:,} events", "s", windows, lower_is_better=True
    )
    fresh.notes.append("the lake's update comes before: " + ", ".join(f"{s:.1f} s" for s in shop.updates))
    fresh.notes.append(f"Spark's JVM and its Python workers at most {memory.most:,.0f} MiB together")
    fresh.reach("≤10 s", fresh.spread().median, 10.0, at_least=False)
    written = Measured(f"lake write of whole lives, {events:,} events", "events/s", copied)
    written.reach("≥60,000/s", written.spread().median, 60_000)
    made = Measured(f"13 marts of typed tables, {events:,} events", "events/s", first)
    made.reach("≥500,000/s", made.spread().median, 500_000)
    return [written, made, fresh]


class _Shop:
    """A log, its lake and its marts; they grow."""

    def __init__(self, rig: Rig, session: SparkSession) -> None:
        self._rig, self._session = rig, session
        self._lake, self._out, self._anew = (rig.folder / name for name in ("lake", "marts", "marts-anew"))
        self._orders, self._versions = 0, Counter[str]()
        self.updates: list[float] = []

    def grow(self, orders: int) -> None:
        first, self._orders = self._orders, self._orders + orders
        bulk.put_events(self._rig.kafka, bulk.interleaved(bulk.lives(orders, first)), PER_TRANSACTION)
        moved = (event for (event,) in bulk.stocks(orders, first, self._versions))
        bulk.put_events(self._rig.kafka, moved, PER_TRANSACTION)

    def grow_on(self) -> None:
        self.grow(MORE_ORDERS)
        self.updates.append(_timed(self.copy))

    def copy(self) -> None:
        update(self._session, self._rig.kafka, self._lake, lambda _: None)

    def publish(self, out: Path | None = None) -> None:
        selection = Selection(self._rig.kafka, self._lake)
        with redirect_stdout(io.StringIO()):  # the first rows of each
            publish(self._session, list(MARTS), selection, read_commits(self._lake), out or self._out)

    def follow(self) -> Window:
        return Window(_timed(self.publish))

    def make_anew(self) -> Window:
        shutil.rmtree(self._anew, ignore_errors=True)
        return Window(_timed(lambda: self.publish(self._anew)))


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class TreeMemory(Background):
    """`most` is what a process and all its children held together at most, in MiB, and `parts` what it was made of: the
    process itself, Java, Python's workers. What they share, because they were forked, counts once (Linux: PSS)."""

    def __init__(self, pid: int) -> None:
        super().__init__("memory")
        self._root, self.most, self.parts = psutil.Process(pid), 0.0, dict[str, float]()

    def _work(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            with suppress(psutil.NoSuchProcess):  # a worker ended meanwhile
                held = {"itself": _held(self._root), "java": 0.0, "python": 0.0}
                for child in self._root.children(recursive=True):
                    held["java" if child.name() == "java" else "python"] += _held(child)
                if sum(held.values()) > self.most:
                    self.most, self.parts = sum(held.values()), held


def _held(process: psutil.Process) -> float:
    mebibytes: float = process.memory_full_info().pss / 2**20
    return mebibytes
