"""A drill, declared as data, and the one runner of all drills: on two sites, on three brokers and on containers.

A drill is a claim, a rig in the state that the drill needs, the faults that are injected while clients are at work, and
the promises that are checked afterwards. The runner starts the clients, injects the faults, waits for the last outcomes
and checks each promise in order. It returns the report.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from infra.base.errors import DaybookError
from infra.dr.plan import Show
from infra.lab.drills.report import DrillReport
from infra.lab.load.clients import CommandResponse, Request, Urls, longest_gap
from infra.lab.load.load import RATE, Load
from infra.lab.load.orders import Shopping
from infra.lab.load.probes import Probe, read_probe
from services.kernel.record.envelope import format_time, now_micros

Range: TypeAlias = tuple[float, float]


class DrillFailed(DaybookError):
    """A drill could not be completed; the text says why."""


class Rig(Protocol):
    """What a drill runs on: the APIs of each site, the site of the clients and that of the reads.

    `run_id` distinguishes the orders of this run from those of earlier ones.
    """

    @property
    def urls(self) -> Mapping[str, Urls]: ...
    @property
    def site(self) -> str: ...
    @property
    def reads_at(self) -> str: ...
    @property
    def run_id(self) -> str: ...


R = TypeVar("R", bound=Rig)
Observed = TypeVar("Observed")


@dataclass(frozen=True)
class Run:
    """One run of a drill on `target`. Its files go to `folder`; `show` receives the name of each step."""

    target: Any
    seed: int
    folder: Path
    show: Show
    report: DrillReport


@dataclass(frozen=True)
class Clients:
    """The clients of a drill: `letter` begins the names of their orders, `suffix` ends them; `rate` per second. They
    send `extra` headers until they are sent to another site."""

    letter: str
    suffix: str = ""
    rate: float = RATE
    extra: Mapping[str, str] = field(default_factory=dict)

    def load(self, run: Run, rig: Rig, site: str) -> Load:
        shopping = Shopping(run.seed, f"{self.letter}{run.seed}-{rig.run_id}{self.suffix}")
        file = run.folder / f"responses{self.suffix}.jsonl"
        return Load(rig.urls, site, shopping, file, self.rate, self.extra)


@dataclass
class Course(Generic[R]):
    """A drill while it runs. Whatever `running` contains ends when the faults are over."""

    run: Run
    rig: R
    random: Random
    running: ExitStack
    began: float = field(default_factory=time.monotonic)
    loads: list[Load] = field(default_factory=list)
    without_outcome: list[Request] = field(default_factory=list)
    _reads: Probe | None = None

    @property
    def report(self) -> DrillReport:
        return self.run.report

    @property
    def load(self) -> Load:
        """The first clients."""
        return self.loads[0]

    @property
    def responses(self) -> list[CommandResponse]:
        """Those of all clients."""
        return [response for load in self.loads for response in load.responses]

    @property
    def reads(self) -> Probe:
        """The reads of the read model, at the site that the rig names."""
        assert self._reads is not None, "this drill has no clients"
        return self._reads

    def show(self, step: str) -> None:
        """Name a step as it begins: to who watches, and in the report."""
        self.report.story.append(f"{time.monotonic() - self.began:.0f} s: {step}")
        self.run.show(step)

    def sleep(self, seconds: Range) -> None:
        """Sleep as long as the seed decides."""
        time.sleep(self.random.uniform(*seconds))

    def start(self, clients: Clients, site: str) -> Load:
        """Start clients, which work until the faults are over."""
        load = clients.load(self.run, self.rig, site)
        self.running.enter_context(load)
        self.loads.append(load)
        return load

    def start_reads(self) -> None:
        self._reads = self.running.enter_context(read_probe(self.rig.urls[self.rig.reads_at]))

    def write_gap(self, start: float = 0.0, end: float = float("inf")) -> float:
        """The longest time without an accepted command of the first clients that touches `start` to `end`."""
        accepted = [response.at for response in self.load.responses if response.accepted]
        return longest_gap(accepted, start, end)[0]


@dataclass(frozen=True)
class Drill(Generic[R, Observed]):
    """`rig` brings the target into the state that the drill needs. `faults` are injected while the clients are at work,
    and return what was observed, which the `promises` receive.

    A drill that needs no shop has neither clients nor faults: each promise is an experiment of its own. `brokers`: how
    many each of two sites has. `minutes`: about how long it takes on two cores.
    """

    name: str
    claim: str
    rig: Callable[[Run], R]
    promises: Sequence[Callable[[Course[R], Observed], None]]
    clients: Clients | None = None
    faults: Callable[[Course[R]], Observed] | None = None
    brokers: int = 1
    minutes: int = 6

    def run(self, target: Any, seed: int, folder: Path, show: Show) -> DrillReport:
        """Run the drill on this target. Raises DaybookError where it cannot be completed."""
        report = DrillReport(self.name, seed, format_time(now_micros()))
        run = Run(target, seed, folder, show, report)
        rig = self.rig(run)
        with ExitStack() as running:
            course = Course(run, rig, Random(f"{self.name} {seed}"), running)
            if self.clients is not None:
                course.show("clients at work")
                course.start_reads()
                course.start(self.clients, rig.site)
            observed: Any = self.faults(course) if self.faults is not None else None
            course.without_outcome = [request for load in course.loads for request in load.finish()]
        if course.loads:
            report.figures["commands answered"] = len(course.responses)
        for promise in self.promises:
            promise(course, observed)
        return report


def all_have_outcomes(course: Course[Any], _: object) -> None:
    """Every command received its outcome in the end."""
    missing = [f"{request.entity} {request.key}" for request in course.without_outcome]
    course.report.none("commands without an outcome at the end", missing)
