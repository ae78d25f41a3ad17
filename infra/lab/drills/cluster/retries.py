"""What a producer does when the cluster does not respond: retries that double, a full buffer, an unknown topic."""

import time
from contextlib import ExitStack

from confluent_kafka import Producer

from infra.lab.cluster.cluster import BROKERS, Cluster, timed
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.cluster.promises import brokers, new_topic, paused
from infra.lab.drills.cluster.records import FLUSH_SECONDS, Numbered, Stream, TopicContent, count
from infra.lab.drills.drill import Course, Drill
from services.kernel.log import clients

PER_SECOND = 200
WARM_SECONDS = 2.0
STALLS = 3
# The client gives a request up before the leader responds, and the leader is still a member: its session is 6 s.
STALL_SECONDS, REQUEST_MS = 2.5, 1_000
UNKNOWN_MS = 2_000  # how long a client believes that a topic is about to appear; 30 s by default
BUFFER = 500  # records


def _unknown_topic_is_refused(course: Course[ClusterRig], _: None) -> None:
    course.show("a record to an unknown topic")
    report, bootstrap = course.report, course.rig.cluster.bootstrap
    topic = f"drill.unknown-{course.rig.run_id}"
    record = Numbered(bootstrap, topic, "all", **{"topic.metadata.propagation.max.ms": UNKNOWN_MS})
    record.write(1)
    seconds, errors = timed(record.flush), list(record.refused)
    exists = topic in course.rig.cluster.admin.list_topics(timeout=FLUSH_SECONDS).topics
    measured = (
        f"{', '.join(errors) or 'not refused'} after {seconds:.1f} s; "
        f"the topic {'exists' if exists else 'does not exist'}"
    )
    kept = errors in (["_UNKNOWN_TOPIC"], ["UNKNOWN_TOPIC_OR_PART"]) and not exists
    report.promise("a record to an unknown topic", "refused, and no topic is created", measured, kept)


def _retries_double_without_idempotence(course: Course[ClusterRig], _: None) -> None:
    """The leader stands still: the client gives its requests up and repeats them; the leader then executes both."""
    report, cluster = course.report, course.rig.cluster
    course.show(f"the leader stands still {STALLS} times")
    written = _write_through_stalls(cluster)
    for idempotent, (records, content) in written.items():
        name = "with idempotence" if idempotent else "without idempotence"
        lost, twice = len(content.lost(records)), content.duplicates()
        measured = f"{lost} lost, {twice} doubled of {len(records.acknowledged)} acknowledged"
        report.figures[f"{name}: doubled"] = twice
        kept = lost == 0 and (twice == 0 if idempotent else twice > 0)
        promised = "loses none, doubles none" if idempotent else "loses none, doubles some"
        report.promise(f"acks=all and retries, {name}", promised, measured, kept)


def _write_through_stalls(cluster: Cluster) -> dict[bool, tuple[Numbered, TopicContent]]:
    topics = {idempotent: new_topic(cluster, f"retries-{idempotent}".lower()) for idempotent in (False, True)}
    streams = {
        idempotent: Stream(_patient(cluster.bootstrap, topic, idempotent), PER_SECOND)
        for idempotent, topic in topics.items()
    }
    with ExitStack() as running:
        for stream in streams.values():
            running.enter_context(stream)
        for _ in range(STALLS):
            time.sleep(WARM_SECONDS)
            with paused(cluster, BROKERS[0]):
                time.sleep(STALL_SECONDS)
        time.sleep(WARM_SECONDS)
    cluster.await_in_sync()
    return {
        idempotent: (stream.records, count(cluster.bootstrap, topics[idempotent]))
        for idempotent, stream in streams.items()
    }


def _patient(bootstrap: str, topic: str, idempotent: bool) -> Numbered:
    options = {"enable.idempotence": idempotent, "socket.timeout.ms": REQUEST_MS, "retry.backoff.ms": 100}
    return Numbered(bootstrap, topic, "all", **options)


def _a_full_buffer_refuses_at_once(course: Course[ClusterRig], _: None) -> None:
    """A buffer bounds what a client may lose when it ends, not what it writes: the refused record is the caller's."""
    course.show("a client's buffer fills")
    cluster = course.rig.cluster
    topic = new_topic(cluster, "buffer")
    producer = clients.writer(cluster.bootstrap, {"queue.buffering.max.messages": BUFFER})
    producer.produce(topic, b"0")
    producer.flush(FLUSH_SECONDS)
    with paused(cluster, BROKERS[0]):
        accepted, seconds = _fill(producer, topic)
    left = producer.flush(FLUSH_SECONDS)
    content = count(cluster.bootstrap, topic)
    stored = sum(content.times.values())
    measured = (
        f"{accepted} accepted, then refused within {seconds * 1000:.1f} ms; {stored} written, {left} left"
    )
    kept = accepted == BUFFER and stored == BUFFER + 1 and not content.duplicates()
    course.report.promise(
        f"a buffer of {BUFFER} records while the leader stands still", "is full", measured, kept
    )


def _fill(producer: Producer, topic: str) -> tuple[int, float]:
    """How many records the client accepts until its buffer is full, and the seconds of the call that it refuses."""
    for number in range(1, 2 * BUFFER):
        began = time.monotonic()
        try:
            producer.produce(topic, b"%d" % number)
        except BufferError:
            return number - 1, time.monotonic() - began
    return 2 * BUFFER - 1, 0.0


RETRIES = Drill(
    "cluster retries",
    "Write to an unknown topic, to a leader that stands still, and into a full buffer: what is refused or doubled.",
    rig=brokers,
    promises=(_unknown_topic_is_refused, _retries_double_without_idempotence, _a_full_buffer_refuses_at_once),
)
