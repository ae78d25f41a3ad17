"""A fourth broker joins under load, partitions move to it and back, and it leaves: no command fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from contracts.topics import TOPICS
from infra.dr.steps import Show
from infra.lab.cluster.moves import elect_preferred, reassign
from infra.lab.cluster.rig import Rig
from infra.lab.drills.acknowledged import longest_gap
from infra.lab.drills.judging import judge
from infra.lab.drills.load import Load
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from services.kernel.record.envelope import format_time, now_micros

NEW, RACK = 4, "rack-4"
LEAVING = 1
RATE = 20.0
WARM_SECONDS = 5.0
MOVED = (
    *(topic for own in TOPICS.values() for topic in (*own.inputs, own.events)),
    "__transaction_state",
)


def reassignment(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it as it was."""
    report, cluster = DrillReport("cluster reassign", seed, format_time(now_micros())), rig.cluster
    rig.open_shop()
    load = Load(rig.urls, "home", Shopping(seed, f"new-{time.time_ns():x}"), folder / "acked.jsonl", RATE)
    with load:
        time.sleep(WARM_SECONDS)
        began = time.time()
        show(f"broker {NEW} joins")
        report.figures["a broker joins, s"] = _timed(lambda: cluster.add(NEW, RACK))
        before = {place: at.all for place, at in cluster.layout().partitions.items() if place[0] in MOVED}
        plan = {
            place: tuple(NEW if each == LEAVING else each for each in brokers)
            for place, brokers in before.items()
            if LEAVING in brokers
        }
        show(f"{len(plan)} partitions move from broker {LEAVING} to broker {NEW}")
        report.figures["partitions moved"] = len(plan)
        report.figures["moved there, s"] = reassign(cluster.bootstrap, plan, folder)
        elect_preferred(cluster.bootstrap)
        _check_placed(report, rig, plan)
        time.sleep(WARM_SECONDS)
        show("they move back")
        report.figures["moved back, s"] = reassign(
            cluster.bootstrap, {place: before[place] for place in plan}, folder
        )
        elect_preferred(cluster.bootstrap)
        cluster.await_in_sync()
        cluster.remove(NEW)
        ended = time.time()
        time.sleep(WARM_SECONDS)
        unanswered = load.finish()
    gap = longest_gap((each.at for each in load.told if each.accepted), began, ended)[0]
    report.figures["longest time without an accepted command, s"] = gap
    report.figures["commands answered"] = len(load.told)
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    show("coming to rest")
    rig.await_rest()
    judge(report, cluster.bootstrap, load.told)
    return report


def _check_placed(report: DrillReport, rig: Rig, plan: dict[tuple[str, int], tuple[int, ...]]) -> None:
    now = rig.cluster.layout().partitions
    wrong = [f"{topic}/{number}" for (topic, number), to in plan.items() if now[topic, number].all != to]
    report.nothing("partitions that are not where the plan says", wrong)
    leads = sum(at.leader == NEW for at in now.values())
    report.promise("the new broker leads", "some partitions", f"{leads}", leads > 0)


def _timed(step: Callable[[], None]) -> float:
    began = time.monotonic()
    step()
    return time.monotonic() - began
