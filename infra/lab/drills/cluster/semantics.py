"""At most once, at least once, exactly once: one copying process, killed: what it lost and doubled."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS
from infra.lab.cluster.moves import create_placed, delete_topics
from infra.lab.cluster.node import clean_environment
from infra.lab.cluster.rig import Rig
from infra.lab.drills.cluster.records import Found, Numbered, count
from infra.lab.drills.report import DrillReport
from services.kernel.log.reader import high_watermarks
from services.kernel.record.envelope import format_time, now_micros

RECORDS = 6_000
KILLS = 3
KILL_AFTER = 0.1, 0.25  # of the records, at random
COPY_SECONDS = 180.0
SEMANTICS = ("at-most-once", "at-least-once", "exactly-once")


def semantics(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole. The shop is not needed."""
    report, chance = DrillReport("cluster semantics", seed, format_time(now_micros())), Random(f"copy {seed}")
    bootstrap, number = rig.cluster.bootstrap, f"{time.time_ns():x}"
    source = f"drill.source-{number}"
    create_placed(rig.cluster.admin, source, [BROKERS])
    written = Numbered(bootstrap, source, "all")
    written.write(RECORDS)
    written.flush()
    topics = [source]
    for kind in SEMANTICS:
        target = f"drill.{kind}-{number}"
        topics.append(target)
        create_placed(rig.cluster.admin, target, [BROKERS])
        show(f"{kind}: a copier is killed {KILLS} times")
        found = _copied(bootstrap, kind, source, target, chance, folder)
        lost, doubled = len(found.lost(written)), found.doubled()
        report.figures[f"{kind}: lost"], report.figures[f"{kind}: doubled"] = lost, doubled
        measured = f"{lost} lost, {doubled} doubled of {RECORDS}"
        match kind:
            case "at-most-once":
                report.promise(kind, "doubles none, loses some", measured, doubled == 0 < lost)
            case "at-least-once":
                report.promise(kind, "loses none, doubles some", measured, lost == 0 < doubled)
            case _:
                report.promise(kind, "loses none, doubles none", measured, lost == doubled == 0)
        report.story.append(f"{kind}, killed {KILLS} times: {measured}")
    delete_topics(rig.cluster.admin, topics)
    return report


def _copied(bootstrap: str, kind: str, source: str, target: str, chance: Random, folder: Path) -> Found:
    """Run the copier, kill it, run it again, and let it finish."""
    command = [sys.executable, "-m", "infra.lab.drills.cluster.copier", bootstrap, kind, source, target]
    with (folder / f"{kind}.log").open("wb") as log:
        reached = 0
        for _ in range(KILLS):
            reached += int(RECORDS * chance.uniform(*KILL_AFTER))
            process = subprocess.Popen(command, env=clean_environment(), stdout=log, stderr=log)
            try:
                _await_end(bootstrap, target, reached, process)
            finally:
                process.kill()
                process.wait()
        done = subprocess.run(
            command, env=clean_environment(), stdout=log, stderr=log, timeout=COPY_SECONDS, check=False
        )
    if done.returncode:
        raise NotReady(f"the copier ended with {done.returncode}: see {folder / f'{kind}.log'}")
    return count(bootstrap, target)


def _await_end(bootstrap: str, topic: str, offset: int, process: subprocess.Popen[bytes]) -> None:
    wait_until(
        lambda: high_watermarks(bootstrap, topic, [0])[0] >= offset or process.poll() is not None,
        f"the copier reaches offset {offset} of {topic}",
        COPY_SECONDS,
        error=NotReady,
    )
