"""P12: what a crash costs under 50 writes a second, in seconds without an acknowledged write or a fresh read.

Every process of the shop is killed in turn with SIGKILL, as often as there are rounds; its supervisor starts
it again. A fresh read carries the token of the newest acknowledged order and shows it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import httpx

from infra.base.background import Background
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.lab.drills.drill import DrillFailed
from infra.lab.drills.pair import Pair
from infra.lab.load.clients import Api, Request, Urls
from infra.lab.load.load import Load
from infra.lab.load.orders import SKUS, Shopping
from infra.lab.load.shop import api_urls
from tests.bench.harness import Effort, Measured, Say, Unmeasurable, Window
from tests.ports import free_base

RATE = 50.0
WORKERS, APIS = ("order-worker", "inventory-worker"), ("order-api", "inventory-api")
VICTIMS = ("broker", "postgres", *WORKERS, *APIS, "query-api", "projection")
# Shorter pauses than this are the load's own rhythm and a batch's time, not an outage.
PAUSE_SECONDS = 0.5
CALM_SECONDS = 5.0
LONGEST_SECONDS = 180.0
READ_SECONDS = 5.0
BROKER_EXTRA, WORKER_GOAL, API_GOAL, READ_GOAL = 5.0, 3.0, 2.0, 5.0


class Deliveries(Shopping):
    """The load of the inventory API: deliveries only."""

    _delivered = 0

    def next(self, _now: float) -> Request:
        self._delivered += 1
        return self._delivery(SKUS[self._delivered % len(SKUS)], 1, f"more-{self._delivered}")


class FreshReads(Background):
    """Repeatedly reads the newest acknowledged order with its token; `served` are the times."""

    def __init__(self, urls: Urls, load: Load) -> None:
        super().__init__("reads")
        self._urls, self._load = urls, load
        self.served: list[float] = []

    def _work(self) -> None:
        url, caller = self._urls[Api.QUERY], self._urls.caller
        with httpx.Client(base_url=url, timeout=READ_SECONDS, trust_env=False, auth=caller) as client:
            while not self._stopping.wait(0.05):
                orders = (
                    response
                    for response in reversed(self._load.responses)
                    if response.token and response.kind == "order"
                )
                if (newest := next(orders, None)) is None:
                    continue
                try:
                    path, headers = f"/orders/{newest.entity}", {"Consistency-Token": newest.token}
                    if client.get(path, headers=headers).status_code == httpx.codes.OK:
                        self.served.append(time.time())
                except httpx.HTTPError:
                    continue


class Crash(NamedTuple):
    """Seconds without writes, the worse of the two APIs; without fresh reads; of the victim's own start."""

    writes: float
    reads: float
    start: float


def run(effort: Effort, say: Say) -> list[Measured]:
    folder = Path(tempfile.mkdtemp(prefix="daybook-bench-"))
    stack = Pair(StackSettings(home=folder / "home", port_base=free_base()))
    try:
        stack.run("up")
        crashes = _crashes(stack.settings, folder, effort.windows, say)
    except DrillFailed as reason:
        raise Unmeasurable(str(reason)) from reason
    finally:
        stack.run("down")
        shutil.rmtree(folder)
    return [row for victim in VICTIMS for row in _rows(victim, crashes[victim])]


def _crashes(settings: StackSettings, folder: Path, rounds: int, say: Say) -> dict[str, list[Crash]]:
    urls = api_urls(settings)
    orders = Load({"home": urls}, "home", Shopping(1, "p12"), folder / "orders.jsonl", RATE / 2)
    deliveries = Load({"home": urls}, "home", Deliveries(1, "p12-d"), folder / "deliveries.jsonl", RATE / 2)
    crashes: dict[str, list[Crash]] = {victim: [] for victim in VICTIMS}
    with orders, deliveries, FreshReads(urls, orders) as reads:
        observed = Observed(StackJournal(settings.home), (orders, deliveries), reads)
        observed.await_calm(time.time())
        for number in range(rounds):
            for victim in VICTIMS:
                crashes[victim].append(crash := observed.crash(victim))
                say(
                    f"round {number + 1}, {victim}: {crash.writes:.1f} s without writes, "
                    f"{crash.reads:.1f} without reads, own start {crash.start:.1f}"
                )
    return crashes


class Observed:
    """The running shop under load, as its clients see it."""

    def __init__(self, journal: StackJournal, loads: Sequence[Load], reads: FreshReads) -> None:
        self._journal, self._loads, self._reads = journal, loads, reads

    def crash(self, victim: str) -> Crash:
        """Kill one process and wait until the shop is calm again. Raises Unmeasurable where it never is."""
        state = self._journal.read()
        pids = [member.pid for member in (state.members if state else ()) if member.name == victim]
        if not pids or pids[0] is None:
            raise Unmeasurable(f"{victim} does not run")
        killed = time.time()
        os.kill(pids[0], signal.SIGKILL)
        self.await_calm(killed)
        writes = [pauses((response.at for response in list(load.responses)), killed) for load in self._loads]
        return Crash(max(writes), pauses(list(self._reads.served), killed), self._own_start(victim, killed))

    def await_calm(self, since: float) -> None:
        """Wait until every process is ready, and writes and reads have gone on without a pause for a while."""
        calm_from = time.time()

        def calm() -> bool:
            nonlocal calm_from
            now, state = time.time(), self._journal.read()
            newest = [load.responses[-1].at for load in self._loads] + self._reads.served[-1:]
            ready = state is not None and all(member.ready for member in state.members)
            if not ready or len(newest) < 3 or min(newest) < now - PAUSE_SECONDS:
                calm_from = now
            return now > calm_from + CALM_SECONDS

        seconds = since + LONGEST_SECONDS - time.time()
        wait_until(calm, "the shop is calm after a crash", seconds, every=0.1, error=Unmeasurable)

    def _own_start(self, victim: str, since: float) -> float:
        """From the start of its new process to its first readiness."""
        at: dict[str, float] = {}
        for event in self._journal.events():
            moment = datetime.fromisoformat(event["at"]).timestamp()
            if event["process"] == victim and moment > since:
                at.setdefault(event["event"], moment)
        return at["ready"] - at["started"]


def pauses(times: Iterable[float], since: float) -> float:
    """Seconds after `since` in pauses of more than `PAUSE_SECONDS` between one of `times` and the next."""
    ordered = sorted(times)
    gaps = [later - max(earlier, since) for earlier, later in pairwise(ordered) if later > since]
    return sum(gap for gap in gaps if gap > PAUSE_SECONDS)


def _rows(victim: str, crashes: Sequence[Crash]) -> list[Measured]:
    def row(what: str, figures: Iterable[float]) -> Measured:
        windows = {"kill -9": [Window(figure) for figure in figures]}
        return Measured(f"{victim} killed: without {what} for", "s", windows, lower_is_better=True)

    writes = row("an acknowledged write", (crash.writes for crash in crashes))
    reads = row("a fresh read", (crash.reads for crash in crashes))
    worst = max(crash.writes for crash in crashes)
    if victim == "broker":
        beyond = max(crash.writes - crash.start for crash in crashes)
        writes.reach("its own start + 5 s, each time", beyond, BROKER_EXTRA, at_least=False)
        starts = ", ".join(f"{crash.start:.1f}" for crash in crashes)
        writes.notes.append(f"the broker's own starts: {starts} s")
    elif victim in WORKERS:
        writes.reach("≤3 s, each time", worst, WORKER_GOAL, at_least=False)
    elif victim in APIS:
        writes.reach("≤2 s, each time", worst, API_GOAL, at_least=False)
    else:
        writes.reach("no effect, each time", worst, 0.0, at_least=False)
    if victim == "query-api":
        reads.reach("≤2 s, each time", max(crash.reads for crash in crashes), API_GOAL, at_least=False)
    if victim == "projection":
        reads.reach("≤5 s, each time", max(crash.reads for crash in crashes), READ_GOAL, at_least=False)
    return [writes, reads]
