"""Each policy refuses the faults that it is there for: texts of files are changed in a copy, which is then rendered.

A copy has one fault in each file, so that a few renderings are enough for all of them.
"""

# ruff: noqa: E501

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from tests.unit.k8s import policies, process_policies
from tests.unit.k8s.manifests import K8S, Manifests, render
from tests.unit.k8s.policies import Policy
from tests.unit.k8s.test_manifests import POLICIES


class Fault(NamedTuple):
    """In `file`, `text` becomes `wrong`; then `policy` names `reason` for what `root` renders."""

    policy: Policy
    root: str
    file: str
    text: str
    wrong: str
    reason: str

    def __str__(self) -> str:
        return f"{self.policy.__name__}: {self.reason}"


HA, SINGLE, AWAY = "overlays/ha", "overlays/single", "overlays/two-sites/away"
WORKER, API, QUERY = (
    "base/order-worker/statefulset.yaml",
    "base/order-api/statefulset.yaml",
    "base/query-api/deployment.yaml",
)
EVERY, KAFKA, BROKERS = "every-pod/patch.yaml", "kafka/kafka.yaml", "kafka/nodes/three-zones/brokers.yaml"
MIRROR = f"{AWAY}/mirror.yaml"
ORDER_EVENTS = "kafka/topics/order.events.yaml"

FAULTS = [Fault(*fault) for fault in [
    (policies.limits, HA, WORKER, 'limits: {cpu: "2", memory: 1Gi}', 'limits: {cpu: "2"}', "no limits of memory"),
    (policies.limits, HA, BROKERS, 'limits: {cpu: "4", memory: 8Gi}', "limits: {}", "no limits of cpu and memory"),
    (policies.probes, HA, WORKER, "readinessProbe", "lifecycle", "has no readinessProbe"),
    (policies.probes, HA, API, "path: /health/ready", "path: /health/live", "readinessProbe asks /health/live"),
    (policies.probes, HA, QUERY, "port: health", "port: http", "asks clients' port http"),
    (policies.restricted, HA, EVERY, "runAsNonRoot: true", "runAsNonRoot: false", "may run as root"),
    (policies.restricted, HA, EVERY, "drop: [ALL]", "drop: [NET_RAW]", "has capabilities"),
    (policies.restricted, HA, EVERY, "automountServiceAccountToken: false", "hostname: a", "has a token"),
    (policies.restricted, SINGLE, "postgres/statefulset.yaml", "readOnlyRootFilesystem: true", "privileged: true", "its root"),
    (policies.restricted, HA, EVERY, "enableServiceLinks: false", "hostname: a", "a variable for each Service"),
    (policies.restricted, HA, EVERY, "type: RuntimeDefault", "type: Unconfined", "no seccomp profile"),
    (policies.images, HA, "every-pod/kustomization.yaml", "newTag: 0.1.0", "newTag: latest", "another image tomorrow"),
    (policies.images, SINGLE, "postgres/statefulset.yaml", "postgres:18", "postgres:latest", "another image tomorrow"),
    (policies.spread, HA, QUERY, "topologyKey: topology.kubernetes.io/zone", "topologyKey: kubernetes.io/hostname", "not spread"),
    (policies.spread, HA, BROKERS, "whenUnsatisfiable: DoNotSchedule", "whenUnsatisfiable: ScheduleAnyway", "one zone"),
    (policies.disruption, HA, "base/projection/disruption.yaml", "name: projection", "name: nobody", "has 0 Pod"),
    (policies.disruption, HA, "base/query-api/disruption.yaml", "maxUnavailable: 1", "maxUnavailable: 0", "not let one pod go"),
    (policies.disruption, HA, KAFKA, "maxUnavailable: 1", "maxUnavailable: 2", "how many pods"),
    (policies.listeners, HA, KAFKA, "tls: true", "tls: false", "in clear text"),
    (policies.listeners, HA, "kafka/external-loadbalancer/listener.yaml", "    authentication:\n      type: scram-sha-512\n", "", "lets everybody in"),
    (policies.listeners, HA, KAFKA, "authorization:\n      type: simple", "jvmOptions:\n      gcLoggingEnabled: true", "everything to everybody"),
    (policies.listeners, AWAY, MIRROR, "bootstrapServers: daybook-kafka-bootstrap.daybook-home.svc:9094\n        tls:", "bootstrapServers: a:9092\n        config:", "clear text"),
    (policies.topics, HA, ORDER_EVENTS, "partitions: 2", "partitions: 3", "not as the catalogue says"),
    (policies.topics, HA, "kafka/topics/kustomization.yaml", "- order.answers.yaml\n", "", "in the catalogue alone"),
    (policies.topics, SINGLE, "overlays/single/one-replica.yaml", "value: 1\n", "value: 2\n", "not as the catalogue says"),
    (policies.users, HA, "kafka/users/order-api.yaml", "name: order.commands", "name: order.inbox", "topic', name='order.inbox', operation='write') is in the manifests alone"),
    (policies.users, HA, "kafka/users/kustomization.yaml", "- projection.yaml\n", "", "KafkaUser/projection is in the catalogue alone"),
    (policies.users, HA, KAFKA, "superUsers: [admin]", "superUsers: [admin, order-api]", "other super users"),
    (policies.users, HA, API, "daybook/kafka-user: order-api", "daybook/kafka-user: admin", "may do everything, and lasts"),
    (policies.identities, HA, WORKER, "secret: {name: order-worker,", "secret: {name: order-api,", "is order-worker, and mounts"),
    (policies.identities, HA, QUERY, "daybook/kafka-user: query", "daybook/kafka-user: querry", "not in the catalogue"),
    (policies.identities, HA, "base/kafka-client.yaml", "sasl_ssl://", "", "an address in clear text"),
    (policies.identities, HA, "kafka-identity/kustomization.yaml", "daybook/kafka-client=true", "daybook/kafka-client=yes", "nobody who writes its identity"),
    (policies.durability, HA, KAFKA, "min.insync.replicas: 2", "min.insync.replicas: 1", "acknowledges too early"),
    (policies.durability, HA, KAFKA, "offsets.topic.replication.factor: 3", "offsets.topic.replication.factor: 1", "3 replicas"),
    (policies.durability, HA, BROKERS, "deleteClaim: false", "deleteClaim: true", "goes with its resource"),
    (policies.mirror, AWAY, MIRROR, "site\\\\.journal", "order\\\\.commands", "the catalogue says"),
    (policies.mirror, AWAY, MIRROR, "isolation.level: read_committed", "isolation.level: read_uncommitted", "aborted records"),
    (policies.mirror, AWAY, MIRROR, "source.support: enabled", "source.support: disabled", "doubles records"),
    (process_policies.modules, HA, WORKER, "services.order.service", "services.order.servce", "no module"),
    (process_policies.settings, HA, "base/settings.yaml", "DAYBOOK_LOG_LEVEL", "DAYBOOK_LOGLEVEL", "nobody reads DAYBOOK_LOGLEVEL"),
    (process_policies.secrets, HA, API, "defaultMode: 0440", "defaultMode: 0444", "everybody in the pod"),
    (process_policies.secrets, HA, API, "name: DAYBOOK_REPLICA\n", "name: DAYBOOK_HASH_KEY\n", "is written out"),
    (process_policies.slots, HA, WORKER, "Parallel", "OrderedReady", "waits for another one"),
    (process_policies.slots, HA, "overlays/ha/layout-order.yaml", '"2"]', '"1"]', "pods, the layout 1"),
    (process_policies.slots, HA, "overlays/ha/slots.yaml", "value: 2", "value: 3", "more slots than partitions"),
    (process_policies.slots, HA, "overlays/ha/scaling-order-api.yaml", "name: order-api\n  minReplicas", "name: order-worker\n  minReplicas", "scaled by itself"),
    (process_policies.replicas, HA, "overlays/ha/scaling-order-api.yaml", "maxReplicas: 4", "maxReplicas: 5", "share fewer partitions"),
    (process_policies.replicas, HA, "overlays/ha/scaled.yaml", "op: remove\n", "op: replace\n  value: 2\n", "takes back"),
    (process_policies.grace, HA, API, "terminationGracePeriodSeconds: 40", "terminationGracePeriodSeconds: 20", "while requests run"),
    (process_policies.grace, HA, QUERY, "seconds: 5\n", "seconds: 1\n", "requests still come"),
    (process_policies.hosts, HA, EVERY, "$(POD_IP),", "", "refuses its own probes"),
    (process_policies.flows, HA, "base/network/default-deny.yaml", "[Ingress, Egress]", "[Ingress]", "no policy denies"),
    (process_policies.flows, HA, "base/network/database-clients.yaml", "daybook/database-client", "daybook/database-user", "about no pod"),
    (process_policies.references, HA, QUERY, "secretName: query-database", "secretName: query-databse", "there is no Secret"),
    (process_policies.references, HA, "base/registry/service.yaml", "targetPort: http", "targetPort: https", "leads to no port"),
    (process_policies.references, HA, WORKER, "priorityClassName: daybook-writes", "priorityClassName: daybook-write", "no priority"),
]]  # fmt: skip


def copies() -> Iterator[dict[str, Fault]]:
    """Faults of one root, by file, that one copy can have together."""
    for root in sorted({fault.root for fault in FAULTS}):
        rest = [fault for fault in FAULTS if fault.root == root]
        while rest:
            together: dict[str, Fault] = {}
            for fault in rest:
                together.setdefault(fault.file, fault)
            rest = [fault for fault in rest if together[fault.file] is not fault]
            yield together


COPIES = dict(zip(count(), copies(), strict=False))


@cache
def rendered(number: int) -> Manifests:
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(K8S, Path(folder) / "k8s")
        for file, fault in COPIES[number].items():
            content = (copy / file).read_text("utf-8")
            assert fault.text in content, fault
            (copy / file).write_text(content.replace(fault.text, fault.wrong), "utf-8")
        return render(copy / next(iter(COPIES[number].values())).root)


@pytest.mark.parametrize(
    ("fault", "number"),
    [(fault, number) for number, together in COPIES.items() for fault in together.values()],
    ids=str,
)
def test_fault_is_refused(fault: Fault, number: int) -> None:
    reasons = [*fault.policy(rendered(number))]
    assert any(fault.reason in line for line in reasons), reasons


def test_each_policy_has_a_fault() -> None:
    assert set(POLICIES) == {fault.policy for fault in FAULTS}
