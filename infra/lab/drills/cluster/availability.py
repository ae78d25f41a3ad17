"""The shop under load while brokers are lost, restarted and added, and while a topic gets more partitions."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from contracts.topics import TOPICS
from infra.base.settings import CLUSTER
from infra.dr.repartition import repartition_shop
from infra.lab.checker.evidence import read_evidence
from infra.lab.cluster.administration import (
    broker_settings,
    elect_preferred,
    metadata_version,
    reassign,
    upgrade_metadata,
)
from infra.lab.cluster.cluster import BROKERS, CONTROLLERS, Cluster, timed
from infra.lab.cluster.rig import SITE, ClusterRig
from infra.lab.drills.cluster.promises import (
    reads_are_never_refused,
    report_restarts,
    under_load,
    writes_go_on,
)
from infra.lab.drills.cluster.records import readable_events
from infra.lab.drills.drill import Course
from infra.lab.drills.judgement import check_tokens
from infra.lab.load.clients import ACCEPTED, longest_gap
from infra.lab.load.probes import Probe, write_probe
from infra.log.topics import catalogue
from services.kernel.log.reader import partitions_of
from services.order.domain.decider import OrderRefusal

WARM = (4.0, 8.0)
AFTER_SECONDS = 8.0
# A worker that cannot learn the outcome of its transaction gives up after half a minute, and starts again.
ONE_LOST_SECONDS, TWO_LOST_SECONDS = 60.0, 30.0
# A write that was sent while two brokers were left, or is under way when the second dies, is not refused yet.
REFUSING_AFTER = 12.0
BETWEEN_SECONDS = 3.0
# Read at start only: it changes with a restart, node by node.
STATIC = ("queued.max.requests", "400")
# Applied while a broker runs.
DYNAMIC = ("log.cleaner.threads", "2")
# A set of `infra/jars.lock`, and its release as Kafka's own program names it.
NEXT, NEXT_RELEASE = "kafka-next", "4.4"
RULES = tuple(rule.name.lower() for rule in OrderRefusal)
NEW, RACK, LEAVING = 4, "rack-4", 1
MOVED = (*(topic for own in TOPICS.values() for topic in (*own.inputs, own.events)), "__transaction_state")
SERVICE, TOKENS = "order", 20


def _start_probe(course: Course[ClusterRig]) -> Probe:
    urls = course.rig.urls[SITE]
    return course.running.enter_context(write_probe(urls, f"probe-{course.rig.run_id}"))


def _lose_brokers(course: Course[ClusterRig]) -> None:
    probe = _start_probe(course)
    first, second = course.random.sample(BROKERS, 2)
    course.sleep(WARM)
    course.show(f"killing broker {first}")
    _lose_one(course, first)
    course.show(f"killing broker {second} too")
    _lose_two(course, probe, second)
    course.show("starting both again")
    _return_both(course, (first, second))
    time.sleep(AFTER_SECONDS)


def _lose_one(course: Course[ClusterRig], broker: int) -> None:
    report, cluster = course.report, course.rig.cluster
    killed = time.time()
    cluster.kill(broker)
    time.sleep(ONE_LOST_SECONDS)
    accepted = [response.at for response in course.load.responses if response.accepted]
    gap, _, resumed = longest_gap(accepted, start=killed)
    after = sum(at > resumed for at in accepted)
    report.figures["one lost: longest time without an accepted command, s"] = gap
    report.figures["one lost: first accepted after that, s after the kill"] = resumed - killed
    measured = f"{after} accepted after a gap of {gap:.1f} s"
    report.promise("one broker lost", "writes go on", measured, after > 0)


def _lose_two(course: Course[ClusterRig], probe: Probe, broker: int) -> None:
    report, cluster = course.report, course.rig.cluster
    killed = time.time()
    cluster.kill(broker)
    time.sleep(TWO_LOST_SECONDS)
    attempts = probe.between(killed + REFUSING_AFTER, time.time())
    kinds = sorted({f"{attempt.status} {attempt.code}".strip() for attempt in attempts})
    report.promise(
        "two brokers lost",
        "every write refused with 503, a code and Retry-After",
        f"{len(attempts)} responses: {', '.join(kinds) or 'none'}",
        bool(attempts) and all(row.status == 503 and row.code and row.retry_after for row in attempts),
    )
    slowest = max((attempt.at - attempt.sent for attempt in attempts), default=0.0)
    report.figures["two lost: longest time to a refusal, s"] = slowest
    began = time.time()
    readable, without_end = readable_events(cluster.bootstrap)
    report.promise(
        "two brokers lost: both logs read from the beginning, committed records only",
        "reads go on",
        f"{len(readable):,} events, {', '.join(without_end) or 'no partition'} without an end",
        bool(readable) and not without_end,
    )
    responses = list(course.load.responses)
    before = {response.event_id for response in responses if response.event_id and response.at < killed}
    report.figures["two lost: events acknowledged before"] = len(before)
    report.figures["two lost: of these not readable until a broker is back"] = len(before - readable)
    report.figures["two lost: reading the log, s"] = time.time() - began


def _return_both(course: Course[ClusterRig], brokers: tuple[int, int]) -> None:
    report, cluster, began = course.report, course.rig.cluster, time.time()
    for broker in brokers:
        cluster.launch(broker)
    cluster.await_in_sync()
    in_sync = time.time() - began
    report.figures["both back: all replicas in sync, s"] = in_sync
    report.figures["both back: first accepted command, s"] = writes_go_on(course, "both back", began)


@dataclass(frozen=True)
class Interval:
    """From when to when the faults lasted, in seconds since 1970."""

    began: float
    ended: float
    probe: Probe | None = None


def _restart_every_node(course: Course[ClusterRig]) -> Interval:
    report, cluster, probe = course.report, course.rig.cluster, _start_probe(course)
    course.sleep(WARM)
    began = time.time()
    course.show(f"setting {DYNAMIC[0]}={DYNAMIC[1]} on each broker as it runs")
    seconds = timed(partial(_change_while_running, cluster))
    report.figures["changing a setting of three running brokers, s"] = seconds
    _restart_nodes(course, dict([STATIC]))
    ended = time.time()
    course.sleep(WARM)
    return Interval(began, ended, probe)


def _upgrade_every_node(course: Course[ClusterRig]) -> Interval:
    """Nodes first, which write the old metadata, then the metadata: until then each node could go back."""
    bootstrap, probe = course.rig.cluster.bootstrap, _start_probe(course)
    old = metadata_version(bootstrap, NEXT)
    course.sleep(WARM)
    began = time.time()
    _restart_nodes(course, {}, NEXT)
    course.show(f"the metadata are upgraded to {NEXT_RELEASE}")
    upgrade_metadata(bootstrap, NEXT_RELEASE, NEXT)
    ended = time.time()
    course.sleep(WARM)
    new = metadata_version(bootstrap, NEXT)
    kept, versions = new.startswith(NEXT_RELEASE), f"{old}, then {new}"
    course.report.promise("the metadata have the new version", NEXT_RELEASE, versions, kept)
    return Interval(began, ended, probe)


def _restart_nodes(course: Course[ClusterRig], own: Mapping[str, str], jars: str = "kafka") -> None:
    """Restarts one node after the other, with these settings of its own and these jars."""
    cluster, began = course.rig.cluster, time.time()
    for number in (*BROKERS, *CONTROLLERS):
        cluster.nodes[number] = node = replace(cluster.nodes[number], jars=jars)
        course.show(f"restarting {node.name}")
        seconds = timed(partial(cluster.restart, number, own))
        course.report.figures[f"{node.name}: down, up and in sync, s"] = seconds
        time.sleep(BETWEEN_SECONDS)
    course.report.figures["all nodes restarted, s"] = time.time() - began


def _change_while_running(cluster: Cluster) -> None:
    admin = cluster.admin
    for broker in BROKERS:
        entry = ConfigEntry(*DYNAMIC, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)


def _settings_are_in_force(course: Course[ClusterRig], _: Interval) -> None:
    settings = [broker_settings(course.rig.cluster.admin, broker) for broker in BROKERS]
    for name, value in (STATIC, DYNAMIC):
        values = [own[name] for own in settings]
        kept = values == [value] * len(BROKERS)
        course.report.promise(f"{name} on all three", value, ", ".join(values), kept)


def _no_command_fails(course: Course[ClusterRig], interval: Interval) -> None:
    """Clients that repeat see only the shop's rules; a client that never repeats sees success or 503."""
    report, probe = course.report, interval.probe
    outcomes = [response.outcome for response in course.load.responses]
    failed = [outcome for outcome in outcomes if outcome not in (ACCEPTED, *RULES)]
    report.none("commands refused for another reason than the shop's rules", failed)
    assert probe is not None
    failures = probe.failures()
    report.figures["writes of a client that never repeats"] = len(probe.attempts)
    report.figures["of these answered 503"] = failures.total()
    slowest = max(attempt.at - attempt.sent for attempt in probe.attempts)
    report.figures["slowest of these, s"] = slowest
    others = [f"{count} times {kind}" for kind, count in failures.items() if not kind.startswith("503 ")]
    report.none("answers to single attempts that are neither success nor 503", others)
    report_restarts(course)


def _write_gap(course: Course[ClusterRig], interval: Interval) -> None:
    gap = course.write_gap(interval.began, interval.ended)
    course.report.figures["longest time without an accepted command, s"] = gap


def _move_partitions(course: Course[ClusterRig]) -> Interval:
    report, cluster = course.report, course.rig.cluster
    course.sleep(WARM)
    began = time.time()
    course.show(f"broker {NEW} joins")
    report.figures["a broker joins, s"] = timed(lambda: cluster.add(NEW, RACK))
    home = {
        partition: replicas.all
        for partition, replicas in cluster.layout().partitions.items()
        if partition[0] in MOVED and LEAVING in replicas.all
    }
    plan = {
        partition: tuple(NEW if broker == LEAVING else broker for broker in brokers)
        for partition, brokers in home.items()
    }
    course.show(f"{len(plan)} partitions move from broker {LEAVING} to broker {NEW}")
    report.figures["partitions moved"] = len(plan)
    report.figures["moved there, s"] = reassign(cluster.bootstrap, plan, course.run.folder)
    elect_preferred(cluster.bootstrap)
    now = cluster.layout().partitions
    wrong = [f"{topic}/{number}" for (topic, number), to in plan.items() if now[topic, number].all != to]
    report.none("partitions that are not where the plan says", wrong)
    leads = sum(replicas.leader == NEW for replicas in now.values())
    report.promise("the new broker leads", "some partitions", f"{leads}", leads > 0)
    course.sleep(WARM)
    course.show("they move back")
    report.figures["moved back, s"] = reassign(cluster.bootstrap, home, course.run.folder)
    elect_preferred(cluster.bootstrap)
    cluster.await_in_sync()
    cluster.remove(NEW)
    ended = time.time()
    course.sleep(WARM)
    return Interval(began, ended)


@dataclass(frozen=True)
class Repartitioned:
    """`earlier` are the events of before, id → key. Times in seconds since 1970."""

    partitions: int
    earlier: dict[str, str]
    began: float
    ended: float


def _double_partitions(course: Course[ClusterRig]) -> Repartitioned:
    rig, log = course.rig, TOPICS[SERVICE].events
    before = len(partitions_of(rig.cluster.bootstrap, log))
    course.sleep((2 * WARM[0], 2 * WARM[1]))
    began, earlier = time.time(), dict(_events(rig))
    for moved in repartition_shop(rig.settings, SERVICE, 2 * before, catalogue(CLUSTER), course.show):
        course.report.story.append(
            f"{moved.topic}: {moved.records} records of {moved.keys} keys in {moved.partitions} partitions"
        )
    ended = time.time()
    rig.open_shop()
    time.sleep(AFTER_SECONDS)
    return Repartitioned(before, earlier, began, ended)


def _events(rig: ClusterRig) -> Iterator[tuple[str, str]]:
    for recorded in read_evidence(rig.cluster.bootstrap, [TOPICS[SERVICE].events]):
        yield recorded.metadata.id, recorded.key


def _every_event_keeps_its_key(course: Course[ClusterRig], moved: Repartitioned) -> None:
    report, bootstrap, log = course.report, course.rig.cluster.bootstrap, TOPICS[SERVICE].events
    accepted = [response for response in course.responses if response.accepted]
    report.figures["topics copied, verified, switched, s"] = moved.ended - moved.began
    report.figures["longest time without an accepted command, s"] = course.write_gap(moved.began)
    report.figures["accepted before"] = sum(response.at < moved.began for response in accepted)
    report.figures["accepted after"] = sum(response.at > moved.ended for response in accepted)
    after = len(partitions_of(bootstrap, log))
    used = {recorded.partition for recorded in read_evidence(bootstrap, [log])}
    measured = f"{moved.partitions}, then {after}, of which {len(used)} hold events"
    kept = len(used) == after == 2 * moved.partitions
    report.promise("partitions of the order service", f"{2 * moved.partitions}, all in use", measured, kept)
    now = dict(_events(course.rig))
    gone = [event_id for event_id, key in moved.earlier.items() if now.get(event_id) != key]
    report.none("events of before that are gone, or another's", gone)


def _old_tokens_hold(course: Course[ClusterRig], moved: Repartitioned) -> None:
    """Versions did not change: an earlier token is still good."""
    course.rig.await_rest()
    earlier = [response for response in course.responses if response.at < moved.began]
    check_tokens(course.report, course.rig.urls[SITE], earlier, newest=TOKENS)


BROKER_LOSS = under_load(
    "broker-loss",
    "Kill one broker, then a second, under load: writes continue, then are refused; nothing is lost.",
    _lose_brokers,
    reads_are_never_refused,
)
ROLLING = under_load(
    "rolling",
    "Restart every node under load, each with a changed setting: no command may fail.",
    _restart_every_node,
    _settings_are_in_force,
    _write_gap,
    _no_command_fails,
)
UPGRADE = under_load(
    "upgrade",
    "Move every node to Kafka's next release under load, then the metadata: no command may fail.",
    _upgrade_every_node,
    _write_gap,
    _no_command_fails,
)
REASSIGN = under_load(
    "reassign",
    "Add a broker under load, move partitions to it and back, and remove it.",
    _move_partitions,
    _write_gap,
)
REPARTITION = under_load(
    "repartition",
    "Double the order service's partitions under load: every key's order is kept, no command is lost.",
    _double_partitions,
    _every_event_keeps_its_key,
    _old_tokens_hold,
)
