"""Consumer groups: a projection worker dies and a spare takes over; the delay of a group's first rebalance."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.base.errors import NotReady
from infra.base.ports import HOST
from infra.base.settings import AWAY_PORTS
from infra.base.waiting import wait_until
from infra.lab.cluster.cluster import BROKERS
from infra.lab.cluster.rig import SITE, ClusterRig
from infra.lab.drills.cluster.promises import brokers, log_is_sound, new_topic, with_shop
from infra.lab.drills.drill import Course, Drill
from infra.lab.load.clients import Api
from infra.stack.embedded.child import Child
from infra.stack.embedded.stack import members
from infra.stack.shop import http_ready
from services.kernel.log import clients
from services.kernel.log.reader import once_settled
from services.kernel.record.envelope import partition_of

PROJECTION = "projection"
READY_SECONDS = 120.0
PATIENCE = 120.0
SESSION_SECONDS = 10.0  # the projection's own setting
DELAY_MS = 3_000  # Kafka's default; ours is 0
TRIES = 3
MEMBERS = 2  # and partitions
MEMBER_SESSION_MS, DOWN_SECONDS = 10_000, 3.0


class _Spare:
    """A second projection process of the same group."""

    def __init__(self, rig: ClusterRig, folder: Path) -> None:
        ((member,),) = members(rig.settings, (PROJECTION,))
        program, self._port = member.prepare(), rig.settings.health_port(PROJECTION) + AWAY_PORTS
        # The first process has the static name in the group.
        own = {"DAYBOOK_HEALTH_PORT": str(self._port), "DAYBOOK_PROJECTION_INSTANCE": ""}
        environment = {**program.environment, **own}
        self._program = replace(program, name="spare", environment=environment)
        self._log = folder / "spare.log"
        self.child = Child(self._program, self._log)
        self.restarts = 0

    def ready(self) -> bool:
        return http_ready(f"http://{HOST}:{self._port}")

    def restart_if_ended(self) -> None:
        """As a supervisor does: a projection in doubt ends."""
        if self.child.exit_code is not None:
            self.child = Child(self._program, self._log)
            self.restarts += 1


@contextmanager
def _spare(rig: ClusterRig, folder: Path) -> Iterator[_Spare]:
    """It is ready in the block, and ends after it."""
    spare = _Spare(rig, folder)
    try:
        spare.child.wait_until(spare.ready, READY_SECONDS)
        yield spare
    finally:
        spare.child.stop()


def _spare_takes_over(course: Course[ClusterRig], _: None) -> None:
    rig, report = course.rig, course.report
    course.show("a spare projection worker joins")
    with _spare(rig, course.run.folder) as spare:
        _read_back(rig, spare, f"before-{rig.run_id}")
        course.show("the first one is killed")
        killed = time.monotonic()
        os.kill(rig.pid(PROJECTION), signal.SIGKILL)
        rig.journal.keep_down(PROJECTION)
        slowest = _read_back(rig, spare, f"after-{rig.run_id}")
        report.promise(
            "a projection worker is killed",
            "a spare applies every partition",
            f"writes to all partitions read back, the last {slowest:.1f} s after it was written",
            True,
        )
        report.figures["kill to every partition read back, s"] = time.monotonic() - killed
        report.figures["session timeout of the group, s"] = SESSION_SECONDS
        report.figures["the spare was started again, times"] = spare.restarts
        rig.journal.release(PROJECTION)
        rig.open_shop()


def _read_back(rig: ClusterRig, spare: _Spare, name: str) -> float:
    """Write to a SKU of each partition of the stock, and read each write. Returns the seconds until the last was there.

    Raises NotReady where a write is not read back in time.
    """
    urls, slowest, number = rig.urls[SITE], 0.0, 0
    skus: dict[int, str] = {}
    while len(skus) < 2:
        skus.setdefault(partition_of(f"{name}-{number}", 2), f"{name}-{number}")
        number += 1
    with httpx.Client(timeout=30, trust_env=False, auth=urls.caller) as client:
        tokens = {}
        for sku in skus.values():
            body = {"quantity": 1, "reference": name}
            response = client.post(f"{urls[Api.INVENTORY]}/stock/{sku}/receipts", json=body)
            tokens[sku] = response.raise_for_status().headers["Consistency-Token"]
        written = time.monotonic()
        for sku, token in tokens.items():
            url, headers = f"{urls[Api.QUERY]}/stock/{sku}", {"Consistency-Token": token}
            while client.get(url, headers=headers).status_code != httpx.codes.OK:
                spare.restart_if_ended()
                if time.monotonic() > written + PATIENCE:
                    raise NotReady(f"the write to {sku} is not in the read model after {PATIENCE:.0f} s")
            slowest = max(slowest, time.monotonic() - written)
    return slowest


def _first_rebalance_waits(course: Course[ClusterRig], _: None) -> None:
    """One broker gets Kafka's default; groups that it coordinates wait, the others' do not."""
    course.show("the first rebalance of a group")
    cluster, report, slow = course.rig.cluster, course.report, BROKERS[-1]
    before = cluster.nodes[slow].own
    cluster.restart(slow, {**before, "group.initial.rebalance.delay.ms": str(DELAY_MS)})
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _attempt in range(100):
        group = f"drill-{time.time_ns():x}"
        delayed = _coordinator(cluster.admin, group) == slow
        if len(seconds[delayed]) < TRIES:
            seconds[delayed].append(_first_assignment(cluster.bootstrap, group))
        if all(len(tries) == TRIES for tries in seconds.values()):
            break
    with_delay, without = (sorted(seconds[delayed])[TRIES // 2] for delayed in (True, False))
    report.figures["first assignment, delay 0, s (median of 3)"] = without
    report.figures[f"first assignment, delay {DELAY_MS} ms, s (median of 3)"] = with_delay
    measured = f"{without:.2f} s with 0, {with_delay:.2f} s with {DELAY_MS} ms"
    kept = min(seconds[True]) * 1000 >= DELAY_MS
    report.promise("group.initial.rebalance.delay.ms", "the first rebalance waits for it", measured, kept)
    cluster.restart(slow, before)


def _coordinator(admin: AdminClient, group: str) -> int:
    """The broker that coordinates a group; a new coordinator first reads the groups that it takes over."""

    def describe() -> int:
        ((_, future),) = admin.describe_consumer_groups([group], request_timeout=PATIENCE).items()
        return int(future.result(PATIENCE).coordinator.id)

    return once_settled(describe, PATIENCE)


def _first_assignment(bootstrap: str, group: str) -> float:
    """Seconds from subscribing to the partitions, of one consumer in a new group."""
    options = {"group.id": group, "enable.auto.commit": True, "auto.offset.reset": "latest"}
    with clients.follower(bootstrap, options=options) as consumer:
        consumer.list_topics("order.events", timeout=PATIENCE)
        assigned: list[float] = []
        began = time.monotonic()
        consumer.subscribe(["order.events"], on_assign=lambda *_: assigned.append(time.monotonic()))
        while not assigned:
            record = consumer.poll(0.05)
            if record is not None and record.error() is not None and not record.error().retriable():
                raise KafkaException(record.error())
            if time.monotonic() > began + PATIENCE:
                raise NotReady(f"{group} was assigned nothing")
    return assigned[0] - began


class _Member:
    """A consumer of a group, with the partitions that it has; `revocations` counts how often it lost them."""

    def __init__(self, bootstrap: str, topic: str, group: str, instance: str | None) -> None:
        static = {"group.instance.id": instance} if instance else {}
        options = {"group.id": group, "session.timeout.ms": MEMBER_SESSION_MS, **static}
        self.consumer = clients.follower(bootstrap, options=options)
        self.revocations = 0
        self.consumer.subscribe([topic], on_revoke=self._revoked)

    def _revoked(self, *_: object) -> None:
        self.revocations += 1

    def partitions(self) -> int:
        self.consumer.poll(0.05)
        return len(self.consumer.assignment())


def _a_restart_moves_nothing(course: Course[ClusterRig], _: None) -> None:
    report, cluster = course.report, course.rig.cluster
    topic = new_topic(cluster, "members", replicas=[BROKERS] * MEMBERS)
    for kind in ("dynamic", "static"):
        course.show(f"a {kind} member is restarted, then stopped")
        moved, taken = _restarted(cluster.bootstrap, topic, kind == "static")
        report.figures[f"{kind} member stopped: its partition has another reader, s"] = taken
        promised = "the other member goes on" if kind == "static" else "the other member loses its partitions"
        measured = f"{moved} rebalances; when it stopped for good, taken over after {taken:.1f} s"
        report.promise(
            f"a {kind} member is restarted", promised, measured, (moved == 0) == (kind == "static")
        )


def _restarted(bootstrap: str, topic: str, static: bool) -> tuple[int, float]:
    """How often a member lost its partitions while the other one was restarted; the seconds until it had both after
    the other one stopped for good."""
    group = f"drill-{time.time_ns():x}"

    def member(name: str) -> _Member:
        return _Member(bootstrap, topic, group, name if static else None)

    survivor, other = member("a"), member("b")
    try:
        _until(lambda: [survivor.partitions(), other.partitions()] == [1, 1])
        before = survivor.revocations
        other.consumer.close()
        until = time.monotonic() + DOWN_SECONDS
        while time.monotonic() < until:
            survivor.partitions()
        other = member("b")
        _until(lambda: [survivor.partitions(), other.partitions()] == [1, 1])
        moved, stopped = survivor.revocations - before, time.monotonic()
        other.consumer.close()
        _until(lambda: survivor.partitions() == MEMBERS)
        return moved, time.monotonic() - stopped
    finally:
        survivor.consumer.close()


def _until(done: Callable[[], bool]) -> None:
    wait_until(done, "the members have their partitions", PATIENCE, error=NotReady)


GROUPS = Drill(
    "cluster groups",
    "Kill a projection worker beside a spare one; measure what a group's first rebalance waits for.",
    rig=with_shop,
    promises=(_spare_takes_over, log_is_sound, _first_rebalance_waits),
)
STATIC_MEMBERS = Drill(
    "cluster static-members",
    "Restart a consumer that is a dynamic, then a static member of its group: who loses partitions, for how long.",
    rig=brokers,
    promises=(_a_restart_moves_nothing,),
)
