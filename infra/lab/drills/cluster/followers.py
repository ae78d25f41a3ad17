"""What a slow follower costs the writers of its leader, and what large segments cost a broker after a crash."""

import time

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.lab.cluster.administration import DURABLE, elect_preferred
from infra.lab.cluster.cluster import BROKERS, Cluster, timed
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.cluster.promises import brokers, new_topic, paused
from infra.lab.drills.cluster.records import Numbered, Stream, count
from infra.lab.drills.drill import Course, Drill
from infra.lab.load.clients import longest_gap

PER_SECOND = 100
WARM_SECONDS, STILL_SECONDS = 3.0, 12.0
# Ours for the drill, and Kafka's default, which is longer than the session of a broker (6 s).
LAGS_MS = 2_000, 30_000
MIB = 1024 * 1024
# The least that Kafka accepts, and its default.
SEGMENTS = MIB, 1024 * MIB
LOG_BYTES, VALUE_BYTES = 64 * MIB, 8 * 1024
CHECKPOINT = {"log.flush.offset.checkpoint.interval.ms": "1000"}  # 60 s by default
CHECKPOINTS_SECONDS = 5.0
LOADED_SECONDS = 120.0


def _a_slow_follower_delays_writes(course: Course[ClusterRig], _: None) -> None:
    report, cluster, pauses = course.report, course.rig.cluster, list[float]()
    before = cluster.nodes[BROKERS[0]].own
    for lag_ms in LAGS_MS:
        course.show(f"replica.lag.time.max.ms={lag_ms}: a follower stands still")
        cluster.restart(BROKERS[0], {**before, "replica.lag.time.max.ms": str(lag_ms)})
        pause, lost = _pause(cluster, new_topic(cluster, f"lag-{lag_ms}"))
        pauses.append(pause)
        report.figures[f"replica.lag.time.max.ms={lag_ms}: pause of acknowledged writes, s"] = pause
        report.none(f"replica.lag.time.max.ms={lag_ms}: acknowledged records lost", lost)
    short, long = pauses
    measured = f"{short:.1f} s with {LAGS_MS[0]} ms, {long:.1f} s with {LAGS_MS[1]} ms"
    report.promise(
        "a follower that stands still delays acks=all", "less, with a shorter lag", measured, short < long
    )
    cluster.restart(BROKERS[0], before)


def _pause(cluster: Cluster, topic: str) -> tuple[float, list[str]]:
    """The longest time without an acknowledgement while a follower stands still, and what was lost."""
    records = Numbered(cluster.bootstrap, topic, "all")
    with Stream(records, PER_SECOND):
        time.sleep(WARM_SECONDS)
        began = time.time()
        with paused(cluster, BROKERS[-1]):
            time.sleep(STILL_SECONDS)
    pause, _, _ = longest_gap(records.times, began)
    cluster.await_in_sync()
    return pause, [str(number) for number in sorted(count(cluster.bootstrap, topic).lost(records))]


def _small_segments_recover_sooner(course: Course[ClusterRig], _: None) -> None:
    """After a crash a broker reads again whatever it had not flushed: whole segments are flushed as they end."""
    report, cluster, number = course.report, course.rig.cluster, BROKERS[-1]
    before = cluster.nodes[number].own
    cluster.restart(number, {**before, **CHECKPOINT})
    topics = []
    for size in SEGMENTS:
        course.show(f"writing {LOG_BYTES // MIB} MiB in segments of {size // MIB} MiB")
        own = {**DURABLE, "segment.bytes": str(size)}
        topics.append(new_topic(cluster, f"segment-{size // MIB}", own))
        records = Numbered(cluster.bootstrap, topics[-1], "all", padding=VALUE_BYTES)
        records.write(LOG_BYTES // VALUE_BYTES)
        records.flush()
    time.sleep(CHECKPOINTS_SECONDS)
    course.show(f"broker {number} is killed and comes back")
    cluster.kill(number)
    # Until its session ends, it still counts as a member that is in sync.
    wait_until(lambda: cluster.layout().behind(), "the kill is noticed", LOADED_SECONDS, error=NotReady)
    cluster.launch(number)
    report.figures["from the start after the kill until it is a member, s"] = timed(
        lambda: cluster.await_members([number])
    )
    cluster.await_in_sync()
    elect_preferred(cluster.bootstrap)
    small, large = (_load_ms(cluster, number, topic) for topic in topics)
    names = [f"{size // MIB} MiB" for size in SEGMENTS]
    report.figures[f"loading {LOG_BYTES // MIB} MiB in segments of {names[0]}, ms"] = small
    report.figures[f"loading {LOG_BYTES // MIB} MiB in segments of {names[1]}, ms"] = large
    what = f"after a crash, segments of {names[0]} load in this part of the time of {names[1]}"
    report.at_most(what, small / max(large, 1), 1.0, unit="")
    cluster.restart(number, before)


def _load_ms(cluster: Cluster, number: int, topic: str) -> int:
    """As the broker logs it when it starts: `Completed load of … in 12ms (1/57 completed in …)`. Raises NotReady."""
    log = cluster.nodes[number].folder / "node.log"

    def loads() -> list[str]:
        lines = log.read_text().splitlines()
        return [line for line in lines if f"{topic}-0" in line and "Completed load" in line]

    wait_until(loads, f"{topic} is loaded", LOADED_SECONDS, error=NotReady)
    return int(loads()[-1].partition("ms (")[0].rpartition(" in ")[2])


REPLICA_LAG = Drill(
    "cluster replica-lag",
    "Let a follower stand still with two values of replica.lag.time.max.ms: how long acks=all waits for it.",
    rig=brokers,
    promises=(_a_slow_follower_delays_writes,),
)
SEGMENT_RECOVERY = Drill(
    "cluster segments",
    "Kill a broker whose logs have small and large segments: how long it reads them before it is back.",
    rig=brokers,
    promises=(_small_segments_recover_sooner,),
)
