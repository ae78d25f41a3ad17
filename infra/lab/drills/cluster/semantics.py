"""At most once, at least once, exactly once: a copying process is killed; what it lost and duplicated is counted."""

import subprocess
import sys
from pathlib import Path
from random import Random

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.cluster.promises import brokers, new_topic
from infra.lab.drills.cluster.records import Numbered, TopicContent, count
from infra.lab.drills.drill import Course, Drill
from infra.stack.embedded.kafka import kafka_environment
from services.kernel.log.reader import high_watermarks

RECORDS = 6_000
KILLS = 3
KILL_AFTER = 0.1, 0.25  # of the records, at random
COPY_SECONDS = 180.0
SEMANTICS = ("at-most-once", "at-least-once", "exactly-once")


def _copiers_keep_their_promise(course: Course[ClusterRig], _: None) -> None:
    report, cluster = course.report, course.rig.cluster
    source = new_topic(cluster, "source")
    written = Numbered(cluster.bootstrap, source, "all")
    written.write(RECORDS)
    written.flush()
    for kind in SEMANTICS:
        target = new_topic(cluster, kind)
        course.show(f"{kind}: a copier is killed {KILLS} times")
        content = _copied(cluster.bootstrap, kind, source, target, course.random, course.run.folder)
        lost, twice = len(content.lost(written)), content.duplicates()
        report.figures[f"{kind}: lost"], report.figures[f"{kind}: doubled"] = lost, twice
        measured = f"{lost} lost, {twice} doubled of {RECORDS}"
        match kind:
            case "at-most-once":
                report.promise(kind, "doubles none, loses some", measured, twice == 0 < lost)
            case "at-least-once":
                report.promise(kind, "loses none, doubles some", measured, lost == 0 < twice)
            case _:
                report.promise(kind, "loses none, doubles none", measured, lost == twice == 0)


def _copied(
    bootstrap: str, kind: str, source: str, target: str, random: Random, folder: Path
) -> TopicContent:
    """Run the copier, kill it, run it again, and let it finish."""
    command = [sys.executable, "-m", "infra.lab.drills.cluster.copier", bootstrap, kind, source, target]
    with (folder / f"{kind}.log").open("wb") as log:
        reached = 0
        for _ in range(KILLS):
            reached += int(RECORDS * random.uniform(*KILL_AFTER))
            process = subprocess.Popen(command, env=kafka_environment(), stdout=log, stderr=log)
            try:
                _await_end(bootstrap, target, reached, process)
            finally:
                process.kill()
                process.wait()
        done = subprocess.run(command, env=kafka_environment(), stdout=log, stderr=log, timeout=COPY_SECONDS)
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


COPIES = Drill(
    "cluster semantics",
    "Kill a copier that promises at most, at least and exactly once: what each loses and doubles.",
    rig=brokers,
    promises=(_copiers_keep_their_promise,),
)
