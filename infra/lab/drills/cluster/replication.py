"""The promises of replicas: which writes survive a leader, which replica may lead, and which one serves readers."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import msgspec
from confluent_kafka import Consumer, TopicPartition

from infra.base.errors import NotReady
from infra.base.waiting import wait_until
from infra.lab.cluster.administration import (
    IN_SYNC,
    NotDurable,
    elect_preferred,
    elect_unclean,
    require_durable,
)
from infra.lab.cluster.cluster import BROKERS, Cluster
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.cluster.promises import brokers, new_topic, paused
from infra.lab.drills.cluster.records import Numbered, Stream, TopicContent, count
from infra.lab.drills.drill import Course, Drill
from infra.lab.drills.report import DrillReport
from infra.log.topics import settings_in_force
from services.kernel.log import clients
from services.kernel.record.codec import sound

ACKS = ("0", "1", "all")
PER_SECOND = 400
WARM_SECONDS, AFTER_SECONDS = 3.0, 12.0
# Followers that are stopped this long are still members, and in sync as far as the cluster can see.
BEHIND_SECONDS = 2.0
STEP = 200  # records
LEADER_SECONDS = 60.0
# Enough time to elect a leader, if that were allowed.
NOBODY_SECONDS = 15.0
QUICKLY = {"message.timeout.ms": 4000}
RACK_RECORDS, READ_SECONDS = 20_000, 60.0  # of a kilobyte
# So little at a time that the reader fetches hundreds of times.
FETCH_BYTES = 65_536
MOST = 0.8


def _acks_all_loses_nothing(course: Course[ClusterRig], _: None) -> None:
    report = course.report
    for how, behind in (("killed", False), ("killed while its followers stand still", True)):
        course.show(f"the leader is {how}")
        written = _write_and_kill(course.rig.cluster, behind)
        for name, (records, content) in written.items():
            about, acknowledged = f"acks={name}, leader {how}", len(records.acknowledged)
            report.figures[f"{about}: acknowledged"] = acknowledged
            report.figures[f"{about}: of these lost"] = len(content.lost(records))
            report.figures[f"{about}: written twice"] = content.duplicates()
            report.figures[f"{about}: not acknowledged"] = records.sent - acknowledged
        records, content = written["all"]
        name = f"acks=all with idempotence, leader {how}"
        report.none(f"{name}: lost", [str(number) for number in content.lost(records)])
        report.promise(f"{name}: doubled", "0", str(content.duplicates()), not content.duplicates())
        if behind:
            weak = {name: len(log.lost(own)) for name, (own, log) in written.items() if name != "all"}
            measured = ", ".join(f"acks={name}: {lost}" for name, lost in weak.items())
            what = "acks=0 and acks=1 then lose acknowledged records"
            report.promise(what, "some", measured, all(weak.values()))


def _write_and_kill(cluster: Cluster, behind: bool) -> dict[str, tuple[Numbered, TopicContent]]:
    """Kill once the leader that all three topics have, under three streams."""
    leader, topics = BROKERS[0], {name: new_topic(cluster, f"acks-{name}") for name in ACKS}
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
    return {
        name: (stream.records, count(cluster.bootstrap, topics[name])) for name, stream in streams.items()
    }


def _kill_leader(cluster: Cluster, leader: int, behind: bool) -> None:
    followers = [number for number in BROKERS if number != leader] if behind else []
    with paused(cluster, *followers):
        if behind:
            time.sleep(BEHIND_SECONDS)
        cluster.kill(leader)


def _settings_are_read_back(course: Course[ClusterRig], _: None) -> None:
    """The start has proved every topic. Here: what a topic without settings gets, and that a wrong one is named."""
    report, cluster = course.report, course.rig.cluster
    course.show("reading settings back")
    default = new_topic(cluster, "default", {})
    value = settings_in_force(cluster.admin, [default])[default]["min.insync.replicas"]
    report.promise("min ISR of a topic that does not say", str(IN_SYNC), value, value == str(IN_SYNC))
    careless = new_topic(cluster, "careless", {"min.insync.replicas": "1"})
    refusal = ""
    try:
        require_durable(cluster.bootstrap, cluster.controllers, course.run.folder)
    except NotDurable as error:
        refusal = str(error)
    named = refusal.splitlines()[1:]
    kept = named == [f"topic {careless} has min.insync.replicas=1, not {IN_SYNC}"]
    report.promise(
        "a topic with min ISR 1", "the start's check names it, and only it", "; ".join(named), kept
    )


def _a_replica_in_sync_leads(course: Course[ClusterRig], _: None) -> None:
    report, cluster = course.report, course.rig.cluster
    course.show("killing a leader")
    before = cluster.layout()
    lost = before.leaders().most_common(1)[0][0]
    led = before.led_by(lost)
    killed = time.monotonic()
    cluster.kill(lost)
    _until(lambda: all(cluster.layout().partitions[partition].leader not in (lost, -1) for partition in led))
    elapsed = time.monotonic() - killed
    after = cluster.layout()
    strangers = [
        f"{topic}/{number}"
        for topic, number in led
        if after.partitions[topic, number].leader not in before.partitions[topic, number].in_sync
    ]
    report.none(f"of {len(led)} partitions, led now by a replica that was not in sync", strangers)
    report.figures["kill of a leader to a new one for all its partitions, s"] = elapsed
    cluster.launch(lost)
    cluster.await_in_sync()
    elsewhere = len(cluster.layout().not_preferred())
    began = time.monotonic()
    elect_preferred(cluster.bootstrap)
    home = cluster.layout()
    left, leaders = len(home.not_preferred()), dict(sorted(home.leaders().items()))
    report.promise(
        "preferred election",
        "every partition back with its first replica",
        f"{elsewhere} were led elsewhere, {left} are; leaders {leaders}",
        elsewhere > 0 and not left,
    )
    report.figures["preferred election, s"] = time.monotonic() - began


def _only_an_unclean_election_loses(course: Course[ClusterRig], _: None) -> None:
    """The followers die, one after the other, then the leader; only the follower with the fewest records returns."""
    report, cluster = course.report, course.rig.cluster
    course.show("losing every replica that is in sync")
    safe, forced = new_topic(cluster, "safe"), new_topic(cluster, "forced")
    leader, second, first = BROKERS
    written = {topic: Numbered(cluster.bootstrap, topic, "all", **QUICKLY) for topic in (safe, forced)}
    _write(written)
    cluster.kill(first)
    _until(lambda: _in_sync(cluster, safe) == _in_sync(cluster, forced) == {leader, second})
    _write(written)
    cluster.kill(second)
    _until(lambda: _in_sync(cluster, safe) == _in_sync(cluster, forced) == {leader})
    _write(written)
    _one_replica_left_is_refused(report, list(written.values()))
    cluster.kill(leader)
    cluster.launch(first)
    cluster.await_members([first])
    time.sleep(NOBODY_SECONDS)
    led_by = cluster.layout().partitions[safe, 0].leader
    report.promise("the one that missed half returns alone", "unavailable", f"leader {led_by}", led_by == -1)
    elect_unclean(cluster.bootstrap, forced, 0)
    _until(lambda: cluster.layout().partitions[forced, 0].leader == first)
    for broker in (leader, second):
        cluster.launch(broker)
    cluster.await_in_sync()
    elect_preferred(cluster.bootstrap)
    lost = count(cluster.bootstrap, safe).lost(written[safe])
    report.none("acknowledged records lost where it waited", [str(record) for record in sorted(lost)])
    gone = len(count(cluster.bootstrap, forced).lost(written[forced]))
    report.promise(
        "the same, with an unclean election by an operator's hand",
        "available, and loses what it did not have",
        f"{gone} of {len(written[forced].acknowledged)} acknowledged records lost",
        gone == STEP,
    )


def _one_replica_left_is_refused(report: DrillReport, written: list[Numbered]) -> None:
    errors = sorted({name for records in written for name in records.refused})
    refused = [records.refused.total() for records in written]
    kept = all(len(records.acknowledged) == 2 * STEP for records in written)
    measured = f"{sum(refused)} refused: {', '.join(errors)}"
    report.promise("acks=all with one replica left", "refused", measured, kept and set(refused) == {STEP})


def _write(written: Mapping[str, Numbered]) -> None:
    for records in written.values():
        records.write(STEP)
    for records in written.values():
        records.flush()


def _in_sync(cluster: Cluster, topic: str) -> set[int]:
    return set(cluster.layout().partitions[topic, 0].in_sync)


def _until(done: Callable[[], bool]) -> None:
    wait_until(done, "the expected leader is elected", LEADER_SECONDS, error=NotReady)


def _readers_stay_in_their_rack(course: Course[ClusterRig], _: None) -> None:
    """A reader in a rack is served by the replica in that rack, and by others when that replica is gone."""
    report, cluster = course.report, course.rig.cluster
    leader, neighbour, _far = BROKERS
    topic = new_topic(cluster, "racks")
    written = Numbered(cluster.bootstrap, topic, "all", padding=1000)
    written.write(RACK_RECORDS)
    written.flush()
    course.show("reading without a rack, then in one")
    without, inside = (_read(cluster.bootstrap, topic, rack) for rack in ("", f"rack-{neighbour}"))
    for reader, broker, fetches in (
        ("a reader without a rack", leader, without),
        (f"a reader in the rack of broker {neighbour}", neighbour, inside),
    ):
        share = fetches[broker] / fetches.total()
        report.promise(f"{reader}: fetches", f"most from broker {broker}", _by_broker(fetches), share >= MOST)
    course.show(f"broker {neighbour} is killed")
    cluster.kill(neighbour)
    began = time.monotonic()
    after = _read(cluster.bootstrap, topic, f"rack-{neighbour}")
    report.figures["all read again after the neighbour's kill, s"] = time.monotonic() - began
    served = after[neighbour] == 0
    report.promise("the same reader, its neighbour killed", "served by others", _by_broker(after), served)
    cluster.launch(neighbour)
    cluster.await_in_sync()
    elect_preferred(cluster.bootstrap)


def _by_broker(fetches: Counter[int]) -> str:
    return ", ".join(f"broker {broker}: {number}" for broker, number in sorted(fetches.items()))


def _read(bootstrap: str, topic: str, rack: str) -> Counter[int]:
    """Read everything. Returns the number of fetches from each broker, as the client counts them. Raises NotReady."""
    fetches: Counter[int] = Counter()

    def add(statistics: str) -> None:
        for broker in msgspec.json.decode(statistics)["brokers"].values():
            if broker["nodeid"] >= 0:
                fetches[broker["nodeid"]] = broker["req"].get("Fetch", 0)

    options = {
        "client.rack": rack,
        "fetch.message.max.bytes": FETCH_BYTES,
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 128,
        "statistics.interval.ms": 100,
        "stats_cb": add,
    }
    with clients.follower(bootstrap, [TopicPartition(topic, 0, 0)], options) as consumer:
        _read_all(consumer)
        consumer.poll(0.5)  # the last statistics
    return fetches


def _read_all(consumer: Consumer) -> None:
    read, until = 0, time.monotonic() + READ_SECONDS
    while read < RACK_RECORDS:
        if time.monotonic() > until:
            raise NotReady(f"{read} of {RACK_RECORDS} records were read in {READ_SECONDS:.0f} s")
        read += len(sound(consumer.consume(1000, 0.2)))


ELECTIONS = Drill(
    "cluster elections",
    "Read settings back; lose, elect and restore leaders; measure what unclean elections would lose.",
    rig=brokers,
    promises=(_settings_are_read_back, _a_replica_in_sync_leads, _only_an_unclean_election_loses),
)
ACKNOWLEDGEMENTS = Drill(
    "cluster acks",
    "Write with acks 0, 1 and all while the leader is killed, and count what was acknowledged and lost.",
    rig=brokers,
    promises=(_acks_all_loses_nothing,),
)
RACKS = Drill(
    "cluster racks",
    "Read in a rack: the replica there serves until it is killed.",
    rig=brokers,
    promises=(_readers_stay_in_their_rack,),
)
