"""A drill of two sites, declared as data, and the one runner of them all.

A drill is a claim, the state that the sites must be in, what goes wrong while clients are at work, and the promises
that are checked afterwards. The runner starts the clients, lets things go wrong, waits for the last responses and
checks each promise in order; what it returns is the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Generic, TypeAlias, TypeVar

from infra.dr.steps import Show
from infra.lab.drills.load import RATE, Load
from infra.lab.drills.pair import Pair
from infra.lab.drills.probe import ReadProbe
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Request, Shopping
from infra.lab.retail.requests import Api
from infra.stack.site import Site
from services.kernel.record.envelope import format_time, now_micros

Seen = TypeVar("Seen")
Range: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Run:
    """One run of a drill: which sites, which seed, where its files go, who is shown the steps."""

    pair: Pair
    seed: int
    folder: Path
    show: Show


@dataclass(frozen=True)
class Sides:
    """The sites when the clients start: the active one, the other, and the epoch."""

    active: Site
    other: Site
    epoch: int


Rig: TypeAlias = Callable[[Run, DrillReport], Sides]


@dataclass(frozen=True)
class Clients:
    """The clients of the active site: `letter` begins the names of their orders, `suffix` ends them and the file's
    name; `rate` is in commands per second."""

    letter: str
    suffix: str = ""
    rate: float = RATE

    def load(self, run: Run, sides: Sides, site: Site) -> Load:
        shopping = Shopping(run.seed, f"{self.letter}{run.seed}-{sides.epoch}{self.suffix}")
        return Load(run.pair.urls(), site.name, shopping, run.folder / f"told{self.suffix}.jsonl", self.rate)


@dataclass
class Course:
    """A drill while it is held. `reads` are those of the site that the drill names; `loads` are all clients."""

    run: Run
    sides: Sides
    chance: Random
    report: DrillReport
    reads: ReadProbe
    running: ExitStack
    loads: list[Load] = field(default_factory=list)
    unanswered: list[Request] = field(default_factory=list)

    @property
    def pair(self) -> Pair:
        return self.run.pair

    @property
    def load(self) -> Load:
        """The first clients."""
        return self.loads[0]

    def show(self, step: str) -> None:
        self.run.show(step)

    def sleep(self, seconds: Range) -> None:
        """As long as the seed decides."""
        time.sleep(self.chance.uniform(*seconds))

    def start(self, clients: Clients, site: Site) -> Load:
        """Clients that work until all are finished."""
        load = clients.load(self.run, self.sides, site)
        self.running.enter_context(load)
        self.loads.append(load)
        return load


@dataclass(frozen=True)
class Drill(Generic[Seen]):
    """`faults` are injected while clients are at work and return what was seen of them, which the `promises` get.

    `rig` brings the sites into the state that the drill needs. `reads_at_active`: reads are asked for at the active
    site, else at the other.
    """

    name: str
    claim: str
    rig: Rig
    clients: Clients
    faults: Callable[[Course], Seen]
    promises: Sequence[Callable[[Course, Seen], None]]
    reads_at_active: bool = False

    def hold(self, pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
        """Hold the drill on these sites. Raises DrillFailed."""
        run, report = Run(pair, seed, folder, show), DrillReport(self.name, seed, format_time(now_micros()))
        sides = self.rig(run, report)
        read = sides.active if self.reads_at_active else sides.other
        with ReadProbe(pair.urls()[read.name][Api.QUERY]) as reads, ExitStack() as running:
            course = Course(run, sides, Random(f"{self.name} {seed}"), report, reads, running)
            show("clients at work")
            course.start(self.clients, sides.active)
            seen = self.faults(course)
            course.unanswered = [request for load in course.loads for request in load.finish()]
        for promise in self.promises:
            promise(course, seen)
        return report


def whole(run: Run, _: DrillReport) -> Sides:
    """One active site, one passive, and a mirror that is caught up. Raises DrillFailed."""
    sides = Sides(*run.pair.roles())
    run.pair.await_mirrored(sides.active, sides.other)
    return sides


def all_answered(course: Course, _: object) -> None:
    """Every command got its response in the end."""
    course.report.nothing(
        "commands without an answer at the end", [each.command_id for each in course.unanswered]
    )
