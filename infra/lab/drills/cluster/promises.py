"""What the drills of a cluster have in common: their rigs, their topics, and the promises that each of them makes."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from infra.base.waiting import TooLate, wait_until
from infra.lab.cluster.administration import DURABLE, SECONDS, create_assigned
from infra.lab.cluster.cluster import BROKERS, Cluster
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.drill import Clients, Course, Drill, Run, all_have_outcomes
from infra.lab.drills.judgement import judge
from infra.log.topics import delete_topics

RATE = 20.0  # commands per second
RECOVERED_SECONDS = 120.0
TOPICS_PREFIX = "drill."


def brokers(run: Run) -> ClusterRig:
    """A whole cluster, without the topics of earlier drills; the drill does not need the shop."""
    rig: ClusterRig = run.target
    admin = rig.cluster.admin
    topics = admin.list_topics(timeout=SECONDS).topics
    if earlier := [name for name in topics if name.startswith(TOPICS_PREFIX)]:
        delete_topics(admin, earlier)
    rig.cluster.await_in_sync()
    return rig


def new_topic(
    cluster: Cluster,
    name: str,
    config: Mapping[str, str] = DURABLE,
    replicas: Sequence[Sequence[int]] = (BROKERS,),
) -> str:
    """Create a topic, by default with one partition on all brokers. Returns its name, which begins with `drill.` and
    `name`; the next drill deletes it."""
    topic = f"{TOPICS_PREFIX}{name}-{time.time_ns():x}"
    create_assigned(cluster.bootstrap, topic, replicas, config)
    return topic


def with_shop(run: Run) -> ClusterRig:
    """A whole cluster with the shop on it."""
    rig = brokers(run)
    rig.open_shop()
    return rig


def log_is_sound(course: Course[ClusterRig], _: Any) -> None:
    """Nothing is under way any more, and the raw log satisfies every invariant."""
    course.show("coming to rest")
    course.rig.await_rest()
    judge(course.report, course.rig.cluster.bootstrap, course.responses)


def under_load(
    name: str, claim: str, faults: Callable[[Course[ClusterRig]], Any], *promises: Any
) -> Drill[ClusterRig, Any]:
    """A drill of the shop on a cluster. Besides the promises every command has its outcome, and the log is sound."""
    clients, every = Clients(name, rate=RATE), (*promises, all_have_outcomes, log_is_sound)
    return Drill(f"cluster {name}", claim, with_shop, every, clients, faults)


@contextmanager
def paused(cluster: Cluster, *numbers: int) -> Iterator[None]:
    """These nodes stand still during the block, with their connections."""
    pids = [cluster.pid(number) for number in numbers]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def writes_go_on(course: Course[ClusterRig], what: str, since: float) -> float:
    """Promise it for after `since`. Returns the seconds until a command was accepted; infinite where none was."""

    def accepted() -> list[float]:
        return [row.at - since for row in list(course.load.responses) if row.accepted and row.at > since]

    with suppress(TooLate):
        wait_until(accepted, "a command is accepted again", RECOVERED_SECONDS)
    first = min(accepted(), default=float("inf"))
    kept = first < float("inf")
    course.report.promise(what, "writes go on by themselves", f"after {first:.1f} s", kept)
    return first


def report_restarts(course: Course[ClusterRig]) -> None:
    """A line of the story for each process that its supervisor restarted during the drill."""
    for name, times in course.rig.restarted().items():
        course.report.story.append(f"{name} was started again {times} times by its supervisor")


def reads_are_never_refused(course: Course[ClusterRig], _: None) -> None:
    """Whatever was lost."""
    report, reads = course.report, course.reads
    report.none("reads of the query API refused, whatever was lost", list(reads.failures().elements()))
    report.figures["reads served"] = reads.succeeded
    report.figures["longest time without a read, s"] = reads.gap()
    report_restarts(course)
