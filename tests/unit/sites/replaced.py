"""A model of two sites: processes that freeze, a link that is cut, a promotion, and clients of the old site.

Time is simulated. The rules are the real ones: `SiteProof`, `Control`, `claimed_epoch` and `fence_site`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.kernel.records import SiteAlone, SiteHold, SiteLease, SiteRole
from infra.dr import plan, promotion
from infra.log.control import Address, SiteSilent
from services.kernel.log import proof
from services.kernel.log.control import ALONE, CONTROL, HOLD, LEASE, ROLE, Control
from services.kernel.record.codec import encode

HOP = 0.002
LATE = 0.3  # until a process has read its site's records after a gap
SILENT = 2.0  # when a command calls a site silent
OLD, NEW = 1, 2  # epochs
Step = Iterator[float]


@dataclass
class Process:
    """It does not run from `frozen` to `until`. `skew` is what its clock is ahead."""

    skew: float = 0.0
    frozen: float = float("inf")
    until: float = float("inf")

    def runs(self, at: float) -> float:
        """The first moment from `at` on at which it runs."""
        return self.until if self.frozen <= at < self.until else at


@dataclass
class Model:
    """`acknowledged` are the times of the old site's responses to commands, `promoted` that of the role."""

    random: Random
    lease_seconds: int = 0
    cut: tuple[float, float] = (float("inf"), float("inf"))
    now: float = 0.0
    promoted: float = float("inf")
    fenced: float = float("inf")
    acknowledged: list[float] = field(default_factory=list)
    final_check: bool = True

    def __post_init__(self) -> None:
        names = ("api", "worker", "guard", "broker")
        self.home = {name: Process(self.random.uniform(-5, 5)) for name in names}
        self.proofs = {name: proof.SiteProof(self.lease_seconds) for name in ("api", "worker")}
        self.records: dict[str, list[tuple[float, str, Any]]] = {"home": [], "away": []}
        for site, role in (("home", "active"), ("away", "passive")):
            self.write(site, ROLE, SiteRole(site, role, OLD))  # type: ignore[arg-type]
            self.write(site, LEASE, SiteLease(self.lease_seconds, 0))
        self._controls: dict[tuple[str, int], Control] = {}
        self._events: list[tuple[float, int, Step]] = []
        self._number = count()

    def write(self, site: str, key: str, record: Any) -> None:
        self.records[site].append((self.now, key, record))

    def control(self, site: str, at: float) -> Control:
        """The site's records at that moment."""
        records = self.records[site]
        visible = len(records)
        while visible and records[visible - 1][0] > at:
            visible -= 1
        if (site, visible) not in self._controls:
            control = self._controls[site, visible] = Control()
            for _, key, record in records[:visible]:
                assert control.take(key.encode(), encode(CONTROL, record))
        return self._controls[site, visible]

    def begin(self, step: Step) -> None:
        heapq.heappush(self._events, (self.now, next(self._number), step))

    def advance(self, until: float) -> None:
        """Let every process go on until that moment."""
        while self._events and self._events[0][0] <= until:
            self.now, _, step = heapq.heappop(self._events)
            if (later := next(step, None)) is not None:
                heapq.heappush(self._events, (later, next(self._number), step))
        self.now = until

    def linked(self, at: float) -> bool:
        return not self.cut[0] <= at < self.cut[1]

    def reached(self, name: str) -> float:
        """When the answer of home's broker to a request of now is in the process's hands."""
        return self.home[name].runs(self.home["broker"].runs(self.now + HOP) + HOP)

    def clock(self, name: str) -> float:
        return self.now + self.home[name].skew

    def why_not(self, name: str) -> str:
        own = self.control("home", self.seen(name))
        return self.proofs[name].why_not(own, self.clock(name)) or ("" if own.writing else "passive")

    def seen(self, name: str) -> float:
        """Up to when a process has read home's records: after a gap it is late."""
        late = [
            process.frozen
            for process in (self.home[name], self.home["broker"])
            if process.frozen <= self.now < process.until + LATE
        ]
        return min([self.now, *late]) - HOP

    def contacts(self, name: str) -> Step:
        process = self.home[name]
        while True:
            began, end = self.clock(name), self.reached(name)
            if end - self.now > proof.CONTACT_SECONDS:  # it gives up; if it was frozen itself, perhaps not
                gives_up = process.runs(self.now + proof.CONTACT_SECONDS)
                if gives_up != end or self.random.random() < 0.5:
                    yield process.runs(gives_up + proof.CONTACT_EVERY_SECONDS)
                    continue
            yield end
            self.proofs[name].contact(began, self.clock(name))
            yield process.runs(self.now + proof.CONTACT_EVERY_SECONDS)

    def comparisons(self, name: str) -> Step:
        process = self.home[name]
        while True:
            yield process.runs(self.now + self.random.uniform(proof.COMPARE_EVERY_SECONDS, 0.5))
            if not self.proofs[name].due(self.control("home", self.seen(name)), self.clock(name)):
                continue
            began = self.clock(name)
            if not self.linked(self.now):
                yield process.runs(self.now + proof.COMPARE_SECONDS)
                continue
            yield self.now + self.random.uniform(HOP, 0.1)  # the other site reads its log now
            theirs = self.control("away", self.now)
            yield process.runs(self.now + HOP)
            self.proofs[name].compared(began, theirs)

    def guard(self, late: float) -> Step:
        """`late`: seconds by which it is late when it could run again."""
        guard, broker = self.home["guard"], self.home["broker"]
        while True:
            if guard.until <= self.now < guard.until + late or broker.until <= self.now < broker.until + late:
                yield self.now + late
            theirs = self.control("away", self.now) if self.linked(self.now) else Control()
            yield guard.runs(broker.runs(guard.runs(self.now + 2 * HOP)) + HOP)
            if theirs.role.epoch > self.control("home", self.now).role.epoch:
                self.stand_down()
            yield guard.runs(self.now + 0.5)

    def stand_down(self, *_: Any) -> None:
        self.write("home", ROLE, SiteRole("home", "passive", NEW))
        self.fenced = min(self.fenced, self.now)

    def clients(self, until: float) -> Step:
        """One command after the other is sent; each goes its own way."""
        while self.now < until:
            self.begin(self.command())
            yield self.now + self.random.expovariate(3)

    def command(self) -> Step:
        api, worker, broker = self.home["api"], self.home["worker"], self.home["broker"]
        yield api.runs(self.now + HOP)
        if self.why_not("api"):
            return
        yield broker.runs(self.now + HOP)
        yield worker.runs(self.now + HOP)
        while self.why_not("worker"):
            if self.now > self.fenced:
                return
            yield worker.runs(self.now + 0.5)
        yield worker.runs(
            self.now + self.random.choice((0.0, 0.01))
        )  # it may freeze inside of the transaction
        yield broker.runs(self.now + HOP)
        if self.now >= self.fenced:
            return
        yield api.runs(self.now + HOP)
        yield api.runs(self.now + self.random.choice((0.0, 0.0, self.random.uniform(0, 5))))  # ?wait=settled
        if not (self.final_check and self.why_not("api")):
            self.acknowledged.append(self.now)

    def read_site(self, address: str, *_: object) -> Control:
        if address == "away":
            return self.control("away", self.now)
        until, broker = self.now + SILENT, self.home["broker"]
        while not self.linked(self.now) or broker.runs(self.now) != self.now:
            if self.now >= until:
                raise SiteSilent(address)
            self.advance(min(until, self.now + 0.1))
        return self.control("home", self.now)

    def promote(self) -> bool:
        """The operator's command; False where the old site responds. Its steps take some seconds."""
        try:
            self.read_site("home")
        except SiteSilent:
            pass
        else:
            return False
        self.advance(self.now + self.random.uniform(0.5, 4))
        self.write("away", HOLD, SiteHold("takeover", NEW, 0))
        promotion.fence_site("away", Address("home", "home"), NEW)
        self.advance(self.now + self.random.uniform(0, 0.05))
        self.write("away", ROLE, SiteRole("away", "active", NEW))
        self.promoted = self.now
        return True


@contextmanager
def real_rules(model: Model) -> Iterator[None]:
    """`fence_site` acts on the model, in its time."""
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(
            monotonic=lambda: model.now, sleep=lambda seconds: model.advance(model.now + seconds)
        )
        patch.setattr(promotion, "time", clock)
        patch.setattr(promotion, "read_site", model.read_site)
        patch.setattr(plan, "read_site", model.read_site)
        patch.setattr(promotion, "stand_down", model.stand_down)
        patch.setattr(
            promotion, "write_alone", lambda site, epoch: model.write(site, ALONE, SiteAlone(epoch, 0))
        )
        yield


def course(seed: int, lease_seconds: int = 0, change: Callable[[Model], None] = lambda _: None) -> Model:
    """Freeze random processes of the active site, cut it off if there is a lease, and try to promote the other one."""
    random = Random(seed)
    model = Model(random, lease_seconds)
    change(model)
    with real_rules(model):
        for name in model.proofs:
            model.begin(model.contacts(name))
            model.begin(model.comparisons(name))
        model.begin(model.guard(random.uniform(0, 10)))
        model.advance(2.0)
        for name in random.sample(sorted(model.home), random.randint(0 if lease_seconds else 1, 4)):
            model.home[name].frozen = model.now + random.uniform(2, 3)
            model.home[name].until = model.home[name].frozen + 120 ** random.random()
        if lease_seconds and random.random() < 0.8:
            model.cut = model.now + random.uniform(1, 4), model.now + random.uniform(5, 60)
        model.begin(model.clients(model.now + 150))
        for _ in range(3):
            model.advance(model.now + random.uniform(1.5, 6))
            if model.promote():
                break
        model.advance(model.now + 5)
        ends = [process.until for process in model.home.values() if process.until < float("inf")]
        model.advance(max([model.now, *ends]) + 12)
    return model
