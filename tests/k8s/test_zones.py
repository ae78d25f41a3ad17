"""Simulated nodes in three zones: what is spread, and what a drain may take. Needs a scheduler, and nodes of kwok.

The pods are simulated as well: no process runs. Strimzi's operator is not there, so a StatefulSet stands for each node
pool, with the pool's own rules of placement and the budget that the Kafka resource asks for.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from infra.base.waiting import wait_until
from tests.k8s.cluster import Api, require
from tests.unit.k8s.manifests import K8S, Manifests, of_kind, render, tool

NAMESPACE = "daybook-zones"
SIMULATED = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}
ONLY_SIMULATED = {"nodeSelector": {"type": "kwok"}}
ZONE = "topology.kubernetes.io/zone"
SECONDS = 120.0
# Longer than a drain that goes through, and short enough to see that one is stopped.
DRAIN_SECONDS = 20


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = tool("kubectl") or "kubectl"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def read(*arguments: str) -> Sequence[Mapping[str, Any]]:
    done = kubectl(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    items: Sequence[Mapping[str, Any]] = msgspec.json.decode(done.stdout)["items"]
    return items


def zones() -> Mapping[str, str]:
    """The zone of each simulated node."""
    nodes = read("get", "nodes", "-l", "type=kwok") if os.environ.get("KUBECONFIG") else []
    return {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in nodes}


def running() -> Mapping[str, str]:
    """The node of each pod that is Ready."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in read("-n", NAMESPACE, "get", "pods")
        if ("Ready", "True") in _conditions(pod) and "deletionTimestamp" not in pod["metadata"]
    }


def _conditions(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((condition["type"], condition["status"]) for condition in pod["status"].get("conditions", ()))


def wait_for(pods: int) -> None:
    """Until so many pods are Ready, on any node. Raises TooLate."""
    wait_until(running, f"{pods} pods are ready", SECONDS, enough=lambda ready: len(ready) == pods)


def pool(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """A StatefulSet in the place of a node pool, without volumes."""
    name, rules = manifest["metadata"]["name"], manifest["spec"]["template"]["pod"]
    labels = {"strimzi.io/cluster": "daybook", "strimzi.io/pool-name": name, "strimzi.io/kind": "Kafka"}
    container = {"name": "kafka", "image": "kafka:1", "resources": manifest["spec"]["resources"]}
    tolerations = [*rules.get("tolerations", ()), SIMULATED]
    spec = {"containers": [container], **rules, **ONLY_SIMULATED, "tolerations": tolerations}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": manifest["spec"]["replicas"],
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def budget(kafka: Mapping[str, Any]) -> Mapping[str, Any]:
    """What Strimzi makes of the Kafka resource: one budget for brokers and controllers together."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "daybook-kafka", "namespace": NAMESPACE},
        "spec": {
            **kafka["spec"]["kafka"]["template"]["podDisruptionBudget"],
            "selector": {"matchLabels": {"strimzi.io/kind": "Kafka"}},
        },
    }


def placed(manifests: Manifests) -> Iterator[Mapping[str, Any]]:
    """The workloads of a site and their budgets, in the namespace of this test, on simulated nodes."""
    for manifest in of_kind(manifests, "StatefulSet", "Deployment", "PodDisruptionBudget"):
        moved = {**manifest, "metadata": {**manifest["metadata"], "namespace": NAMESPACE}}
        if manifest["kind"] != "PodDisruptionBudget":
            template = manifest["spec"]["template"]
            spec = {**template["spec"], **ONLY_SIMULATED, "tolerations": [SIMULATED]}
            moved["spec"] = {**manifest["spec"], "replicas": 2, "template": {**template, "spec": spec}}
        yield moved
    yield from (pool(manifest) for manifest in of_kind(manifests, "KafkaNodePool"))
    yield from (budget(manifest) for manifest in of_kind(manifests, "Kafka"))


@pytest.fixture
def shop() -> Iterator[int]:
    """Runs `ha` on simulated nodes, anew for each test; returns the number of its pods.

    Simulated pods end at once, and one that has its predecessor's name counts as evicted for two minutes more: a budget
    would stop the next test's drain.
    """
    if len(set(zones().values())) < 3:
        pytest.skip("zones not tried: the cluster has no nodes of kwok in three zones (label type=kwok)")
    api = Api()
    require(api.apply(render(K8S / "cluster"), dry=False))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    require(api.apply([namespace], dry=False))
    manifests = [*placed(render(K8S / "overlays/ha"))]
    pods = sum(manifest["spec"]["replicas"] for manifest in of_kind(manifests, "StatefulSet", "Deployment"))
    try:
        require(api.apply(manifests, dry=False))
        wait_for(pods)
        yield pods
    finally:
        for node in zones():
            kubectl("uncordon", node)
        kubectl("delete", "namespace", NAMESPACE, "--timeout=90s")


def spread(kind: str) -> Counter[str]:
    """How many pods of a workload are in each zone."""
    by_node = zones()
    return Counter(by_node[node] for pod, node in running().items() if pod.rpartition("-")[0] == kind)


@pytest.mark.usefixtures("shop")
def test_every_zone_has_its_part() -> None:
    assert [*spread("brokers").values()] == [1, 1, 1]
    assert [*spread("controllers").values()] == [1, 1, 1]
    for kind in ("order-worker", "inventory-worker", "order-api", "inventory-api", "projection"):
        assert [*spread(kind).values()] == [1, 1], kind


def drain(node: str) -> subprocess.CompletedProcess[str]:
    return kubectl("drain", node, "--delete-emptydir-data", "--force", f"--timeout={DRAIN_SECONDS}s")


def test_a_drain_takes_one_node_of_the_log_and_no_more(shop: int) -> None:
    """One node is the whole zone here: the evicted node of Kafka waits for its zone, and its budget is used up."""
    node = next(iter(zones()))
    done = drain(node)
    assert done.returncode != 0
    assert "Cannot evict pod as it would violate the pod's disruption budget" in done.stderr
    lost = 3 - len(spread("brokers")) + 3 - len(spread("controllers"))
    assert lost == 1
    # everything of ours has moved to the other zones
    wait_for(shop - 1)
    for kind in ("order-worker", "inventory-worker", "order-api", "inventory-api", "projection"):
        assert sum(spread(kind).values()) == 2, kind
    kubectl("uncordon", node)
    wait_for(shop)
    assert [*spread("brokers").values()] == [1, 1, 1]


def test_a_whole_zone_is_drained_when_its_operator_says_so(shop: int) -> None:
    """With a budget of two, both nodes of Kafka go; a majority of both kinds stays."""
    change = '{"spec": {"maxUnavailable": 2}}'
    assert (
        kubectl("-n", NAMESPACE, "patch", "pdb", "daybook-kafka", "--type=merge", "-p", change).returncode
        == 0
    )
    node = [*zones()][1]
    done = drain(node)
    assert done.returncode == 0, done.stderr
    wait_for(shop - 2)
    assert [*spread("brokers").values()] == [*spread("controllers").values()] == [1, 1]
    assert node not in running().values()
