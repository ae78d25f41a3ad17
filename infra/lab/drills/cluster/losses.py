"""The shop under load while controllers are lost, down to no quorum, and while a broker loses its disk."""

import time
from collections.abc import Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.lab.cluster.administration import elect_preferred, read_quorum
from infra.lab.cluster.cluster import BROKERS, Cluster, timed
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.cluster.promises import new_topic, reads_are_never_refused, under_load, writes_go_on
from infra.lab.drills.cluster.records import Numbered, Stream, count
from infra.lab.drills.drill import Course
from infra.lab.load.clients import longest_gap

WARM = (4.0, 8.0)
# How long each state lasts.
STATE_SECONDS = 15.0
REQUEST_SECONDS = 8.0
ELECTION_SECONDS = 120.0
PAUSE_SECONDS = 10.0
PER_SECOND = 100


def _lose_the_quorum(course: Course[ClusterRig]) -> None:
    report, cluster = course.report, course.rig.cluster
    first = read_quorum(cluster.controllers).leader
    course.sleep(WARM)
    course.show(f"killing controller {first}, which leads")
    killed = time.time()
    cluster.kill(first)
    second = read_quorum(cluster.controllers).leader
    measured = f"controller {second} led after {time.time() - killed:.1f} s at most"
    report.promise("the active controller is killed", "another leads", measured, second != first)
    time.sleep(STATE_SECONDS)
    report.figures["one controller lost: longest time without an accepted command, s"] = course.write_gap(
        killed
    )
    course.show(f"killing controller {second} too")
    _without_quorum(course, second)
    lost = cluster.layout().leaders().most_common(1)[0][0]
    course.show(f"killing broker {lost} as well")
    led = _without_election(course, lost)
    course.show("starting both controllers again")
    _quorum_returns(course, (first, second), lost, led)


def _without_quorum(course: Course[ClusterRig], second: int) -> None:
    """Leaders write on; whatever changes metadata waits."""
    report, cluster = course.report, course.rig.cluster
    killed = time.time()
    cluster.kill(second)
    error = _creation(cluster)
    report.promise("no quorum: a topic is created", "refused, or timed out", error or "created", bool(error))
    time.sleep(STATE_SECONDS)
    accepted = sum(row.accepted and row.sent > killed for row in list(course.load.responses))
    gap = course.write_gap(killed)
    measured = f"{accepted} commands accepted, the longest pause {gap:.1f} s"
    report.promise("no quorum: the leaders that there are", "writes go on", measured, accepted > 0)
    report.figures["no quorum: longest time without an accepted command, s"] = gap


def _creation(cluster: Cluster) -> str:
    """The name of the error with which a new topic is refused; empty where it is created."""
    new = NewTopic(f"drill.no-quorum-{time.time_ns():x}", 1, len(BROKERS))
    options = {"request_timeout": REQUEST_SECONDS, "operation_timeout": REQUEST_SECONDS}
    admin = cluster.admin  # its futures end with it
    ((_, future),) = admin.create_topics([new], **options).items()
    try:
        future.result(4 * REQUEST_SECONDS)
    except KafkaException as error:
        return str(error.args[0].name())
    return ""


def _without_election(course: Course[ClusterRig], lost: int) -> list[tuple[str, int]]:
    """The partitions that the broker led; without a quorum nobody else does."""
    report, cluster = course.report, course.rig.cluster
    led = cluster.layout().led_by(lost)
    killed = time.time()
    cluster.kill(lost)
    time.sleep(STATE_SECONDS)
    still = cluster.layout().led_by(lost)
    measured = f"{len(still)} of {len(led)} partitions still name the dead broker after {STATE_SECONDS:.0f} s"
    report.promise("no quorum, and a broker is killed", "no election", measured, set(still) == set(led))
    # What was under way at the kill may still be acknowledged.
    accepted = sum(row.accepted and row.sent > killed + 1 for row in list(course.load.responses))
    report.figures["no quorum and a broker lost: commands accepted"] = accepted
    return led


def _quorum_returns(
    course: Course[ClusterRig], controllers: Sequence[int], lost: int, led: Sequence[tuple[str, int]]
) -> None:
    report, cluster, began = course.report, course.rig.cluster, time.time()
    for number in controllers:
        cluster.launch(number)

    def others_lead() -> bool:
        partitions = cluster.layout().partitions
        return all(partitions[partition].leader not in (lost, -1) for partition in led)

    wait_until(others_lead, "others lead", ELECTION_SECONDS, error=NotReady)
    elected = time.time() - began
    writes_go_on(course, "the quorum is back", began)
    report.figures["quorum back: others lead the dead broker's partitions, s"] = elected
    cluster.launch(lost)
    cluster.await_in_sync()
    cluster.await_quorum()
    elect_preferred(cluster.bootstrap)


def _lose_a_disk(course: Course[ClusterRig]) -> None:
    """The broker leads a topic of numbered records beside the shop's; its only copies are those of the others."""
    report, cluster = course.report, course.rig.cluster
    lost = course.random.choice(BROKERS)
    replicas = [[lost, *(number for number in BROKERS if number != lost)]]
    topic = new_topic(cluster, "disk", replicas=replicas)
    records = Numbered(cluster.bootstrap, topic, "all")
    with Stream(records, PER_SECOND):
        course.sleep(WARM)
        course.show(f"killing broker {lost}; its disk is lost")
        killed = time.time()
        cluster.kill(lost)
        cluster.lose_disk(lost)
        time.sleep(STATE_SECONDS)
        course.show(f"broker {lost} starts with an empty disk")
        started = time.time()
        cluster.launch(lost)
        cluster.await_members([lost])
        report.figures["from its return until all its replicas are in sync, s"] = timed(cluster.await_in_sync)
        elect_preferred(cluster.bootstrap)
        course.sleep(WARM)
    _report_pauses(course, records, killed, started)
    now = cluster.layout().partitions[topic, 0]
    in_sync = f"leader {now.leader}, in sync {sorted(now.in_sync)}"
    kept = now.leader == lost and len(now.in_sync) == len(BROKERS)
    report.promise(f"broker {lost} with an empty disk", "copies everything and leads again", in_sync, kept)
    content = count(cluster.bootstrap, topic)  # read from its new copies
    missing = [str(number) for number in sorted(content.lost(records))]
    report.none(f"of {len(records.acknowledged)} acknowledged records, lost", missing)
    report.promise("doubled", "0", str(content.duplicates()), not content.duplicates())


def _report_pauses(course: Course[ClusterRig], records: Numbered, killed: float, started: float) -> None:
    """Between the broker's kill and its start, for a client that writes to what it led, and for the shop's clients."""
    pause, _, _ = longest_gap(records.times, killed, started)
    course.report.at_most("a broker lost: pause of acknowledged writes to what it led", pause, PAUSE_SECONDS)
    shop = course.write_gap(killed, started)
    course.report.at_most("a broker lost: pause of accepted commands", shop, PAUSE_SECONDS)


QUORUM_LOSS = under_load(
    "quorum-loss",
    "Kill two of three controllers, then a broker, under load: leaders write on, none is elected; nothing is lost.",
    _lose_the_quorum,
    reads_are_never_refused,
)
DISK_LOSS = under_load(
    "disk-loss",
    "Kill a broker, remove its disk and start it again, under load: writes pause for seconds, nothing is lost.",
    _lose_a_disk,
    reads_are_never_refused,
)
