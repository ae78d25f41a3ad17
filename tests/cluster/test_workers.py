"""What the elections of new leaders cost the workers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.base.waiting import wait_until
from infra.dr.steps import Show
from infra.lab.cluster.rig import Rig
from infra.lab.drills.acknowledged import longest_gap
from infra.lab.drills.judging import judge
from infra.lab.drills.load import Load
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from services.kernel.record.envelope import format_time, now_micros
from tests.cluster.conftest import Hold

ELECTIONS = 10
RATE = 20.0
SECONDS = 120.0
WORKERS = ("order-worker", "inventory-worker")


@pytest.mark.timeout(1800)
def test_each_worker_ends_at_most_once_per_election(hold: Hold) -> None:
    report = hold(ten_elections)
    assert report.figures["commands answered"] > 0


def ten_elections(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Kill the broker that leads most partitions, let it come back, and do it again, under load."""
    report = DrillReport("ten elections", seed, format_time(now_micros()), typed="make test-cluster")
    rig.open_shop()
    shopping = Shopping(seed, f"elections-{time.time_ns():x}")
    with Load(rig.urls, "home", shopping, folder / "acknowledged.jsonl", RATE) as load:
        for number in range(1, ELECTIONS + 1):
            before, killed = len(_ends(rig)), time.time()
            lost = _election(rig, load)
            gap = longest_gap((each.at for each in load.told if each.accepted), killed)[0]
            ends = _ends(rig)[before:]
            told = ", ".join(f"{worker} {how}" for worker, how in ends) or "no worker ended"
            report.story.append(f"broker {lost} killed, {gap:.1f} s without a write; {told}")
            show(f"election {number}: {report.story[-1]}")
            counted = Counter(worker for worker, _ in ends)
            report.nothing(f"election {number}: ended twice", [each for each in WORKERS if counted[each] > 1])
        unanswered = load.finish()
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    report.figures["commands answered"] = len(load.told)
    rig.await_rest()
    judge(report, rig.cluster.bootstrap, load.told)
    return report


def _election(rig: Rig, load: Load) -> int:
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
    now = time.time()
    wanted = {"order", "delivery"}
    _until(lambda: wanted <= {each.kind for each in load.told if each.accepted and each.sent > now}, "writes")


def _ends(rig: Rig) -> list[tuple[str, str]]:
    """Every end of a worker until now: which, and how."""
    return [
        (event["process"], event["detail"])
        for event in rig.journal.events()
        if event["process"] in WORKERS and event["detail"].startswith("exit code")
    ]


def _until(done: Callable[[], bool], what: str) -> None:
    wait_until(done, what, SECONDS)
