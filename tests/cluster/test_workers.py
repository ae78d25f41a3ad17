"""What the elections of new leaders cost the workers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from infra.base.waiting import wait_until
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.cluster.promises import under_load
from infra.lab.drills.drill import Course
from infra.lab.load.load import Load
from tests.cluster.conftest import RunDrill

ELECTIONS = 10
SECONDS = 120.0
WORKERS = ("order-worker", "inventory-worker")


@pytest.mark.timeout(1800)
def test_each_worker_ends_at_most_once_per_election(run_drill: RunDrill) -> None:
    report = run_drill(TEN_ELECTIONS)
    assert report.figures["commands answered"] > 0


def _elect_ten_times(course: Course[ClusterRig]) -> None:
    """Kill the broker that leads most partitions, let it come back, and do it again, under load."""
    rig, report = course.rig, course.report
    for number in range(1, ELECTIONS + 1):
        before, killed = len(_ends(rig)), time.time()
        lost = _election(rig, course.load)
        ends = _ends(rig)[before:]
        ended = ", ".join(f"{worker} {how}" for worker, how in ends) or "no worker ended"
        gap = course.write_gap(killed)
        report.story.append(f"broker {lost} killed, {gap:.1f} s without a write; {ended}")
        course.show(f"election {number}: {report.story[-1]}")
        times = Counter(worker for worker, _ in ends)
        report.none(f"election {number}: ended twice", [name for name in WORKERS if times[name] > 1])


def _election(rig: ClusterRig, load: Load) -> int:
    """The number of the broker that was killed; all its replicas are in sync again."""
    lost = rig.cluster.layout().leaders().most_common(1)[0][0]
    rig.cluster.kill(lost)
    _until(lambda: not {lost, -1} & set(rig.cluster.layout().leaders()), "others lead")
    _await_writes(load)
    rig.cluster.launch(lost)
    rig.cluster.await_in_sync()
    _await_writes(load)
    return lost


def _await_writes(load: Load) -> None:
    """Wait until both workers accept a command that is sent from now on."""
    now, kinds = time.time(), {"order", "delivery"}
    _until(lambda: kinds <= {row.kind for row in load.responses if row.accepted and row.sent > now}, "writes")


def _ends(rig: ClusterRig) -> list[tuple[str, str]]:
    """Every end of a worker until now: which, and how."""
    return [
        (event["process"], event["detail"])
        for event in rig.journal.events()
        if event["process"] in WORKERS and event["detail"].startswith("exit code")
    ]


def _until(done: Callable[[], bool], what: str) -> None:
    wait_until(done, what, SECONDS)


TEN_ELECTIONS = under_load(
    "ten-elections",
    "Kill the leader of most partitions ten times: a worker ends at most once per election.",
    _elect_ten_times,
)
