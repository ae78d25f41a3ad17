"""Switches between two sites that are clusters, while a broker and a controller of the continuing site are dead."""

from dataclasses import replace
from typing import TypeVar

from infra.base.background import Background
from infra.base.settings import CLUSTER
from infra.base.waiting import wait_until
from infra.lab.cluster.administration import read_layout
from infra.lab.drills.drill import Course, Drill, DrillFailed
from infra.lab.drills.pair import Kind, Sides
from infra.lab.drills.switchover import FAILBACK, PLANNED
from infra.lab.drills.takeover import unplanned
from infra.stack.shop import MIRROR
from services.kernel.log import clients

LOOK_SECONDS, WHOLE_SECONDS = 0.05, 180.0
RATE = 4.0  # commands per second: twelve nodes and both shops may share a small machine
Observed = TypeVar("Observed")


class Weakening(Background):
    """Kills a broker and a controller of the continuing site when the switch stops its mirror, and keeps them down.

    The seed chooses them. `killed` is empty where that moment did not come.
    """

    def __init__(self, course: Course[Sides]) -> None:
        super().__init__("weakening")
        self._site, self._platform = course.rig.other, course.rig.pair.platform
        nodes = self._site.settings.nodes
        self._chosen = [course.random.choice(nodes(kind)) for kind in ("broker", "controller")]
        self.killed: list[str] = []
        # before a failback the site is down, and its mirror is held
        self._steps = (False, True) if MIRROR in self._site.journal.held() else (True,)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if held := [name for name in self._chosen if name in self._site.journal.held()]:
            self._platform.start(self._site, *held)  # without a name, all would be started

    def _work(self) -> None:
        for stopped in self._steps:
            while (MIRROR in self._site.journal.held()) != stopped:
                if self._stopping.wait(LOOK_SECONDS):
                    return
        self._platform.stop(self._site, *self._chosen)  # before, so that nothing starts them again
        for name in self._chosen:
            self._platform.kill(self._site, name)
            self.killed.append(name)


def weakened(drill: Drill[Sides, Observed], name: str, claim: str) -> Drill[Sides, Observed]:
    """The same drill on sites that are clusters, which lose a broker and a controller during the switch."""
    faults, of_drill = drill.faults, drill.clients
    assert faults is not None and of_drill is not None

    def with_losses(course: Course[Sides]) -> Observed:
        if course.rig.other.settings.brokers != CLUSTER:
            typed = course.rig.other.settings.typed
            raise DrillFailed(
                f"the sites have one broker each: `{typed} clean`, then `{typed} up --sites 2 --brokers 3`"
            )
        with Weakening(course) as weakening:
            observed = faults(course)
        killed = " and ".join(weakening.killed)
        course.report.promise(
            f"killed at {course.rig.other.name} during the switch, and down until its end",
            "a broker and a controller",
            killed or "none",
            len(weakening.killed) == 2,
        )
        return observed

    promises = (*drill.promises, _all_replicas_return)
    slow = replace(drill, clients=replace(of_drill, rate=RATE), minutes=2 * drill.minutes, brokers=CLUSTER)
    return replace(slow, name=name, claim=claim, faults=with_losses, promises=promises)


def _all_replicas_return(course: Course[Sides], _: object) -> None:
    """What was killed runs again, and every replica of both sites is in sync."""
    pair = course.rig.pair
    up = [site for site in pair.sites.values() if pair.platform.up(site)]
    admins = [clients.admin(site.bootstrap) for site in up]
    wait_until(
        lambda: [partition for admin in admins for partition in read_layout(admin).behind()],
        "all replicas are in sync",
        WHOLE_SECONDS,
        enough=lambda behind: not behind,
        error=DrillFailed,
    )


CLUSTERS_PLANNED = weakened(
    PLANNED,
    "clusters-planned",
    "Switch over between two clusters while the new site loses a broker and a controller: nothing is lost.",
)
CLUSTERS_UNPLANNED = weakened(
    unplanned(Kind.DEAD),
    "clusters-unplanned",
    "Kill a site that is a cluster, fail over to one that loses a broker and a controller: all is accounted for.",
)
CLUSTERS_FAILBACK = weakened(
    FAILBACK,
    "clusters-failback",
    "Fail back to a rebuilt cluster, which loses a broker and a controller meanwhile: nothing is lost.",
)
