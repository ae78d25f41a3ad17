"""Containers of the running shop are broken one after another under load; then the log is judged.

The shop is checked before, too: on a shop with earlier orders, a drill judges only what it did itself.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from random import Random

from infra.base.settings import StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from infra.lab.drills.drill import Clients, Course, Drill, DrillFailed, Run, all_have_outcomes
from infra.lab.drills.judgement import judge
from infra.lab.drills.report import DrillReport
from infra.lab.load.clients import CommandResponse, longest_gap
from infra.lab.load.load import Load
from infra.lab.load.probes import Probe
from infra.lab.load.shop import LoneSite, NotAtRest, await_rest
from infra.stack.compose.engine import Broken, Container, Failure, containers, inject, is_healthy

# Where the shop's log is: the lone broker, or one of the cluster.
LONE_BROKER, CLUSTER = "broker", ("broker-1", "broker-2", "broker-3")
BESIDE_A_BROKER = (
    (Failure.RESTART, "postgres"),
    (Failure.KILL, "order-worker"),
    (Failure.PAUSE, "inventory-worker"),
    (Failure.CUT, "projection"),
    (Failure.RESTART, "order-api"),
)
# A broker that is killed starts again from its disk, and busy machines are slow: the promise is that it ends.
WITHOUT_WRITES_SECONDS = 120.0
NEVER = float("inf")
WELL_SECONDS = 60.0
RATE = 10.0  # commands per second: the shop and its clients may share a small machine
CALM_SECONDS = (0.5, 3.0)
BACK_SECONDS = 240.0
REST_BEFORE_SECONDS, REST_SECONDS = 60.0, 300.0


@dataclass(frozen=True)
class Fault:
    """A failure of the container of a service."""

    failure: Failure
    service: str

    def __str__(self) -> str:
        return f"{self.failure} {self.service}"


def choose(
    running: Collection[str], failures: Sequence[Failure], services: Sequence[str], random: Random
) -> list[Fault]:
    """Each of `failures` for each of `services`, in random order. Where one of them is empty: all four failures, or all
    running services; where both are: six different faults, of which one kills a broker.

    Raises DrillFailed for a service that does not run.
    """
    if failures or services:
        pairs = product(failures or list(Failure), services or sorted(running))
        faults = [Fault(failure, service) for failure, service in pairs]
    else:
        broker = LONE_BROKER if LONE_BROKER in running else random.choice(CLUSTER)
        faults = [Fault(*fault) for fault in ((Failure.KILL, broker), *BESIDE_A_BROKER)]
    absent = sorted({fault.service for fault in faults} - {*running})
    if absent:
        present = ", ".join(sorted(running))
        raise DrillFailed(f"no container runs for {', '.join(absent)}; these do: {present}")
    random.shuffle(faults)
    return faults


@dataclass(frozen=True)
class Containers(LoneSite):
    """The shop in containers, by service, each of them well."""

    settings: StackSettings
    running: Mapping[str, Container]

    def under_way(self, seconds: float) -> str:
        """What has not ended within `seconds`; empty where all has."""
        try:
            await_rest("the shop", self.urls[self.site], seconds)
        except NotAtRest as left:
            return str(left)
        return ""


def running_shop(settings: StackSettings) -> Containers:
    """The shop's containers. Raises DrillFailed where one is not well: a drill must not start with a broken shop.

    The engine checks their health from time to time: a container that has just returned is given time.
    """
    present: list[Container] = []

    def ill() -> list[str]:
        present[:] = containers(settings)
        if not present:
            raise DrillFailed("no container is there: `./daybook --stack compose up` starts them")
        return [
            f"{container.service} is {container.health or container.state}"
            for container in present
            if not container.fine
        ]

    wait_until(
        ill,
        "every container is well",
        WELL_SECONDS,
        enough=lambda names: not names,
        every=1.0,
        error=lambda late: DrillFailed(f"before the drill: {late}; `down` and `up` make containers anew"),
    )
    running = {container.service: container for container in present if container.state == "running"}
    return Containers(settings, running)


def _sound(run: Run) -> Containers:
    """Raises DrillFailed for what the drill would be blamed for: work under way, or an invariant that is broken."""
    shop: Containers = run.target
    run.show("checking the shop before the drill")
    if left := shop.under_way(REST_BEFORE_SECONDS):
        raise DrillFailed(f"before the drill: {left}")
    violations = check(Evidence(read_evidence(shop.settings.kafka), at_rest=True))
    if violations:
        first = f"{violations[0].invariant}, {violations[0].where}: {violations[0].what}"
        raise DrillFailed(f"before the drill the log breaks an invariant {len(violations)} times: {first}")
    return shop


@dataclass(frozen=True)
class Outage:
    """A fault as it happened, in seconds since 1970: when all containers responded again (`healthy`), and when a
    command sent after that was accepted (`over`); never is infinity."""

    fault: Fault
    broken: Broken
    healthy: float = NEVER
    over: float = NEVER


def _one_after_another(
    course: Course[Containers], faults: Sequence[Fault], seconds: float
) -> Iterator[Outage]:
    """Ends early after a fault from which the shop does not recover."""
    for number, fault in enumerate(faults, start=1):
        step = f"{number} of {len(faults)}: {fault}"
        course.show(step)
        course.sleep(CALM_SECONDS)
        broken = inject(course.rig.running[fault.service].name, fault.failure, seconds)
        course.show(f"{step}, repaired; waiting until all respond")
        outage = _recovered(fault, broken, course.rig.running.values(), course.load)
        yield outage
        if outage.over == NEVER:
            return


def _recovered(fault: Fault, broken: Broken, running: Iterable[Container], load: Load) -> Outage:
    until, healthy = broken.mended + BACK_SECONDS, NEVER
    try:
        for container in running:
            responds = partial(is_healthy, container.name)
            wait_until(responds, f"{container.service} is healthy", until - time.time())
        healthy = since = time.time()
        accepted = wait_until(
            lambda: [row.at for row in load.responses[-200:] if row.accepted and row.sent > since],
            "a command is accepted again",
            until - since,
        )
    except TooLate:
        return Outage(fault, broken, healthy)
    return Outage(fault, broken, healthy, min(accepted))


def _outages_end(course: Course[Containers], outages: Sequence[Outage]) -> None:
    report_outages(course.report, outages, course.responses, course.reads)
    reads = course.reads
    course.report.figures["reads served"] = reads.succeeded
    course.report.figures["reads refused"] = reads.failures().total()


def report_outages(
    report: DrillReport, outages: Sequence[Outage], responses: Sequence[CommandResponse], reads: Probe
) -> None:
    """A promise for each outage, and its figures."""
    for number, outage in enumerate(outages, start=1):
        name, broken = f"{number}. {outage.fault}", outage.broken
        gap, slowest = without_writes(responses, broken.began, outage.over)
        healthy = outage.healthy - broken.mended
        report.at_most(f"{name}: seconds without an acknowledged write", gap, WITHOUT_WRITES_SECONDS)
        report.figures[f"{name}: until every container answered, s after it was mended"] = healthy
        report.figures[f"{name}: slowest answer to a command under way, s"] = slowest
        report.figures[f"{name}: longest time without a read, s"] = reads.gap(broken.began, outage.over)
        report.figures[f"{name}: until it was mended, s"] = broken.mended - broken.began


def without_writes(responses: Iterable[CommandResponse], began: float, over: float) -> tuple[float, float]:
    """Of an outage, in seconds: the longest time from one acknowledged write to the next, infinite without an end,
    and the longest time that a command under way waited for its acceptance."""
    accepted = [response for response in responses if response.accepted]
    gap = NEVER if over == NEVER else longest_gap((row.at for row in accepted), began, over)[0]
    waited = [row.seconds for row in accepted if row.sent <= over and row.at >= began]
    return gap, max(waited, default=0.0)


def _at_rest_and_sound(course: Course[Containers], _: object) -> None:
    course.show("coming to rest")
    left = course.rig.under_way(REST_SECONDS)
    course.report.promise("conversations and read models afterwards", "at rest", left or "at rest", not left)
    course.show("judging the log")
    judge(course.report, course.rig.settings.kafka, course.responses)


def break_containers(faults: Sequence[Fault], seconds: float) -> Drill[Containers, list[Outage]]:
    """Each fault lasts `seconds`. An interruption leaves every container repaired."""
    return Drill(
        "containers",
        "Break containers of the running shop, one after another, under load.",
        rig=_sound,
        clients=Clients("containers-", rate=RATE),
        faults=lambda course: list(_one_after_another(course, faults, seconds)),
        promises=(_outages_end, all_have_outcomes, _at_rest_and_sound),
    )
