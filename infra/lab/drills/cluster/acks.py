"""acks 0, 1 and all, while their leader is killed: acknowledged records that are gone, counted."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS, Cluster
from infra.lab.cluster.moves import create_placed, delete_topics, elect_preferred
from infra.lab.cluster.rig import Rig
from infra.lab.drills.cluster.records import Found, Numbered, Stream, count
from infra.lab.drills.report import DrillReport
from services.kernel.record.envelope import format_time, now_micros

ACKS = ("0", "1", "all")
PER_SECOND = 400
WARM_SECONDS = 3.0
# Followers that do nothing this long are still members, and in sync as far as anybody knows.
BEHIND_SECONDS = 2.0
AFTER_SECONDS = 12.0


def acks(rig: Rig, seed: int, _folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole. The shop is not needed."""
    report = DrillReport("cluster acks", seed, format_time(now_micros()))
    for how, behind in (("killed", False), ("killed while its followers stand still", True)):
        show(f"the leader is {how}")
        found = _round(rig.cluster, behind)
        for name, (records, log) in found.items():
            lost, doubled = len(log.lost(records)), log.doubled()
            report.figures[f"acks={name}, leader {how}: acknowledged"] = len(records.acknowledged)
            report.figures[f"acks={name}, leader {how}: of these lost"] = lost
            report.figures[f"acks={name}, leader {how}: written twice"] = doubled
            report.figures[f"acks={name}, leader {how}: not acknowledged"] = records.sent - len(
                records.acknowledged
            )
            report.story.append(
                f"acks={name}, leader {how}: {len(records.acknowledged)} acknowledged, {lost} of them lost, "
                f"{doubled} written twice, {records.sent - len(records.acknowledged)} told as failed"
            )
        records, log = found["all"]
        report.nothing(
            f"acks=all with idempotence, leader {how}: lost", [str(each) for each in log.lost(records)]
        )
        report.promise(
            f"acks=all with idempotence, leader {how}: doubled", "0", str(log.doubled()), not log.doubled()
        )
        if behind:
            weak = {name: len(log.lost(records)) for name, (records, log) in found.items() if name != "all"}
            said = ", ".join(f"acks={name}: {lost}" for name, lost in weak.items())
            report.promise(
                "acks=0 and acks=1 then lose acknowledged records", "some", said, all(weak.values())
            )
    return report


def _round(cluster: Cluster, behind: bool) -> dict[str, tuple[Numbered, Found]]:
    """One kill of the leader that all three topics have, under three streams."""
    number, leader = f"{time.time_ns():x}", BROKERS[0]
    topics = {name: f"drill.acks-{name}-{number}" for name in ACKS}
    for topic in topics.values():
        create_placed(cluster.admin, topic, [BROKERS])
    streams = {name: Stream(Numbered(cluster.bootstrap, topics[name], name), PER_SECOND) for name in ACKS}
    with ExitStack() as running:
        for stream in streams.values():
            running.enter_context(stream)
        time.sleep(WARM_SECONDS)
        _kill_leader(cluster, leader, behind)
        time.sleep(AFTER_SECONDS)
    cluster.launch(leader)
    cluster.await_in_sync()
    elect_preferred(cluster.bootstrap)
    found = {
        name: (stream.records, count(cluster.bootstrap, topics[name])) for name, stream in streams.items()
    }
    delete_topics(cluster.admin, list(topics.values()))
    return found


def _kill_leader(cluster: Cluster, leader: int, behind: bool) -> None:
    followers = [cluster.pid(each) for each in BROKERS if each != leader] if behind else []
    for pid in followers:
        os.kill(pid, signal.SIGSTOP)
    try:
        if behind:
            time.sleep(BEHIND_SECONDS)
        cluster.kill(leader)
    finally:
        for pid in followers:
            os.kill(pid, signal.SIGCONT)
