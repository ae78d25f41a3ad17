"""Who may lead: a survivor that is in sync, the preferred one when asked; without either, nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import ConfigResource

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS, Cluster
from infra.lab.cluster.moves import create_placed, delete_topics, elect_preferred, elect_unclean
from infra.lab.cluster.replicated import IN_SYNC, NotDurable, in_force, require_durable
from infra.lab.cluster.rig import Rig
from infra.lab.drills.cluster.records import Numbered, count
from infra.lab.drills.report import DrillReport
from services.kernel.record.envelope import format_time, now_micros

STEP = 200  # records
LEADER_SECONDS = 60.0
# Time enough to elect somebody, were it allowed.
NOBODY_SECONDS = 15.0
QUICKLY = {"message.timeout.ms": 4000}


def elections(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole. The shop is not needed."""
    report = DrillReport("cluster elections", seed, format_time(now_micros()))
    show("reading settings back")
    _asserted(rig.cluster, report, folder)
    show("killing a leader")
    _leader_lost(rig.cluster, report)
    show("losing every replica that is in sync")
    _unclean(rig.cluster, report)
    return report


def _asserted(cluster: Cluster, report: DrillReport, folder: Path) -> None:
    """The start has proved every topic; here: what a topic without settings gets, and that a wrong one is
    told."""
    admin, name = cluster.admin, f"drill.default-{time.time_ns():x}"
    create_placed(admin, name, [BROKERS], {})
    found = in_force(admin, ConfigResource.Type.TOPIC, [name])[name]["min.insync.replicas"]
    report.promise("min ISR of a topic that does not say", str(IN_SYNC), found, found == str(IN_SYNC))
    careless = f"drill.careless-{time.time_ns():x}"
    create_placed(admin, careless, [BROKERS], {"min.insync.replicas": "1"})
    told = ""
    try:
        require_durable(cluster.bootstrap, cluster.controller_address, folder)
    except NotDurable as error:
        told = str(error)
    named = told.splitlines()[1:]
    kept = named == [f"topic {careless} has min.insync.replicas=1, not {IN_SYNC}"]
    report.promise(
        "a topic with min ISR 1", "the start's check names it, and only it", "; ".join(named), kept
    )
    delete_topics(admin, [name, careless])


def _leader_lost(cluster: Cluster, report: DrillReport) -> None:
    before = cluster.layout()
    lost = before.leaders().most_common(1)[0][0]
    led = [place for place, at in before.partitions.items() if at.leader == lost]
    killed = time.monotonic()
    cluster.kill(lost)
    _until(lambda: all(cluster.layout().partitions[place].leader not in (lost, -1) for place in led))
    elapsed = time.monotonic() - killed
    after = cluster.layout()
    strangers = [
        f"{topic}/{number}"
        for topic, number in led
        if after.partitions[topic, number].leader not in before.partitions[topic, number].in_sync
    ]
    report.nothing(f"of {len(led)} partitions, led now by a replica that was not in sync", strangers)
    report.figures["kill of a leader to a new one for all its partitions, s"] = elapsed
    cluster.launch(lost)
    cluster.await_in_sync()
    astray = len(cluster.layout().astray())
    began = time.monotonic()
    elect_preferred(cluster.bootstrap)
    home = cluster.layout()
    report.promise(
        "preferred election",
        "every partition back with its first replica",
        f"{astray} were astray, {len(home.astray())} are; leaders {dict(sorted(home.leaders().items()))}",
        astray > 0 and not home.astray(),
    )
    report.figures["preferred election, s"] = time.monotonic() - began
    report.story.append(
        f"broker {lost} led {len(led)} partitions; after its kill others led in {elapsed:.1f} s"
    )


def _unclean(cluster: Cluster, report: DrillReport) -> None:
    """The followers die, one after the other, then the leader; only the follower that knows least returns."""
    admin, number = cluster.admin, f"{time.time_ns():x}"
    safe, forced = f"drill.safe-{number}", f"drill.forced-{number}"
    leader, second, first = BROKERS
    for topic in (safe, forced):
        create_placed(admin, topic, [BROKERS])
    written = {topic: Numbered(cluster.bootstrap, topic, "all", **QUICKLY) for topic in (safe, forced)}
    _write(written)
    cluster.kill(first)
    _until(lambda: _in_sync(cluster, safe) == _in_sync(cluster, forced) == {leader, second})
    _write(written)
    cluster.kill(second)
    _until(lambda: _in_sync(cluster, safe) == _in_sync(cluster, forced) == {leader})
    _write(written)
    refused = {name for each in written.values() for name in each.refused}
    report.promise(
        "acks=all with one replica left",
        "refused",
        f"{sum(each.refused.total() for each in written.values())} refused: {', '.join(sorted(refused))}",
        all(each.refused.total() == STEP and len(each.acknowledged) == 2 * STEP for each in written.values()),
    )
    cluster.kill(leader)
    cluster.launch(first)
    cluster.await_members([first])
    time.sleep(NOBODY_SECONDS)
    led_by = cluster.layout().partitions[safe, 0].leader
    report.promise("the one that missed half returns alone", "unavailable", f"leader {led_by}", led_by == -1)
    elect_unclean(cluster.bootstrap, forced, 0)
    _until(lambda: cluster.layout().partitions[forced, 0].leader == first)
    for each in (leader, second):
        cluster.launch(each)
    cluster.await_in_sync()
    elect_preferred(cluster.bootstrap)
    lost = count(cluster.bootstrap, safe).lost(written[safe])
    report.nothing("acknowledged records lost where it waited", [str(each) for each in sorted(lost)])
    gone = len(count(cluster.bootstrap, forced).lost(written[forced]))
    report.promise(
        "the same, with an unclean election by an operator's hand",
        "available, and loses what it did not have",
        f"{gone} of {len(written[forced].acknowledged)} acknowledged records lost",
        gone == STEP,
    )
    delete_topics(admin, [safe, forced])


def _write(written: dict[str, Numbered]) -> None:
    for each in written.values():
        each.write(STEP)
    for each in written.values():
        each.flush()


def _in_sync(cluster: Cluster, topic: str) -> set[int]:
    return set(cluster.layout().partitions[topic, 0].in_sync)


def _until(done: Callable[[], bool]) -> None:
    wait_until(done, "the expected leader is elected", LEADER_SECONDS, error=NotReady)
