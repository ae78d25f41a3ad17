"""Every overlay is accepted by a real API server, and what is wrong is refused for the right reason."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from tests.k8s.cluster import TEST_NAMESPACE, Api, require, single_pods
from tests.unit.k8s.manifests import K8S, ROOTS, Manifests, label, render

GONE = object()
SITES = ("overlays/single", "overlays/two-sites/home", "overlays/two-sites/away")


@cache
def rendered(root: str) -> Manifests:
    return render(K8S / root)


@pytest.fixture(scope="session")
def api() -> Api:
    try:
        api = Api()
    except RuntimeError as reason:
        pytest.exit(str(reason), returncode=1)
    require(api.apply(rendered("cluster"), dry=False))
    for root in SITES:
        api.prepare(rendered(root))
    labels = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "daybook/rules": "enforced",
        "daybook/log": "kept",
    }
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": TEST_NAMESPACE, "labels": labels},
    }
    require(api.apply([namespace], dry=False))
    return api


@pytest.mark.parametrize("root", ROOTS)
def test_overlay_is_accepted(api: Api, root: str) -> None:
    outcome = api.apply(rendered(root))
    assert outcome.accepted, outcome.text
    assert len(outcome.text.splitlines()) == len(rendered(root))


@pytest.mark.parametrize("root", [*SITES, "overlays/ha", "overlays/analytics"])
def test_pods_keep_to_restricted_pod_security(api: Api, root: str) -> None:
    outcome = api.apply(single_pods(rendered(root), TEST_NAMESPACE))
    assert outcome.accepted, outcome.text


# What is changed, where in it, to what, and a part of the reason.
POD = "Pod/order-worker"
FIRST = "spec.containers.0"
REFUSED = [
    ("KafkaTopic/order.events", "spec.partitions", 0, "should be greater than or equal to 1"),
    ("KafkaTopic/order.events", "spec.partition", 2, ".spec.partition: field not declared in schema"),
    ("KafkaTopic/order.events", "apiVersion", "kafka.strimzi.io/v1beta2", 'no matches for kind "KafkaTopic" in version'),
    ("KafkaTopic/order.events", "spec.replicas", "three", "expected numeric (int or float), got string"),
    ("KafkaUser/order-api", "spec.authorization.acls.0.operations", ["Wriet"], "Unsupported value"),
    ("KafkaUser/order-api", "spec.authorization.acls.0.resource.type", "topics", "Unsupported value"),
    ("KafkaUser/order-api", "spec.authentication.type", "password", "Unsupported value"),
    ("Kafka/daybook", "spec.kafka.listeners.0.type", "loadbalancr", "Unsupported value"),
    ("Kafka/daybook", "spec.kafka.listeners.0.tls", GONE, "spec.kafka.listeners[0].tls: Required value"),
    ("Kafka/daybook", "spec.zookeeper", {"replicas": 3}, ".spec.zookeeper: field not declared in schema"),
    ("Kafka/daybook", "spec.kafka.replicas", 3, ".spec.kafka.replicas: field not declared in schema"),
    ("KafkaNodePool/brokers", "spec.roles", ["brokr"], "Unsupported value"),
    ("KafkaNodePool/brokers", "spec.storage", GONE, "spec.storage: Required value"),
    ("KafkaNodePool/brokers", "spec.replicas", -1, "should be greater than or equal to 0"),
    ("KafkaRebalance/full", "spec.mode", "half", "Unsupported value"),
    ("KafkaConnector/settled-orders", "spec.tasksMax", 0, "should be greater than or equal to 1"),
    ("KafkaMirrorMaker2/mirror", "spec.target", GONE, "spec.target: Required value"),
    ("StatefulSet/order-worker", "spec.replicas", "two", "expected numeric"),
    ("StatefulSet/order-worker", "spec.podManagmentPolicy", "Parallel", ".spec.podManagmentPolicy: field not declared in schema"),
    ("StatefulSet/order-worker", "spec.podManagementPolicy", "Serial", "podManagementPolicy"),
    ("StatefulSet/order-worker", "spec.selector.matchLabels", {"a": "b"}, "`selector` does not match template `labels`"),
    ("StatefulSet/order-worker", "spec.template.spec.hostNetwork", True, "violate PodSecurity"),
    ("PodDisruptionBudget/order-worker", "spec.minAvailable", 1, "cannot be both set"),
    ("NetworkPolicy/dns", "spec.egress.0.ports.0.protocol", "TPC", "Unsupported value"),
    ("HorizontalPodAutoscaler/order-api", "spec.maxReplicas", 1, "must be greater than or equal to `minReplicas`"),
    ("Service/order-api", "spec.ports.0.port", 99999, "must be between 1 and 65535"),
    ("CronJob/nightly", "spec.schedule", "at night", "Invalid value"),
    ("PodMonitor/processes", "spec.podMetricsEndpoints.0.intervall", "5s", "field not declared in schema"),
    (POD, f"{FIRST}.securityContext", {"privileged": True}, 'violates PodSecurity "restricted'),
    (POD, "spec.securityContext.runAsUser", 0, 'violates PodSecurity "restricted'),
    (POD, f"{FIRST}.securityContext.capabilities.drop", [], 'violates PodSecurity "restricted'),
    (POD, "spec.volumes.0", {"name": "tmp", "hostPath": {"path": "/"}}, 'violates PodSecurity "restricted'),
    (POD, f"{FIRST}.resources.limits.memory", GONE, "every container needs limits of cpu and memory"),
    (POD, f"{FIRST}.resources", GONE, "every container needs limits of cpu and memory"),
    (POD, f"{FIRST}.image", "daybook-services:latest", "an image needs a digest, or a tag other than latest"),
    (POD, f"{FIRST}.image", "daybook-services", "an image needs a digest, or a tag other than latest"),
    (POD, f"{FIRST}.securityContext.readOnlyRootFilesystem", False, "a process of the shop has a read-only root"),
    (POD, "spec.automountServiceAccountToken", GONE, "a process of the shop has no token of the API server"),
    (POD, "spec.priorityClassName", "daybook-nobody", "no PriorityClass with name daybook-nobody"),
]  # fmt: skip


def named(name: str) -> Mapping[str, Any]:
    """The manifest of this name, wherever it is; a Pod in the namespace for tests."""
    if name.startswith("Pod/"):
        return next(pod for pod in single_pods(rendered("overlays/ha"), TEST_NAMESPACE) if label(pod) == name)
    everything = (manifest for root in ("overlays/ha", *ROOTS) for manifest in rendered(root))
    return next(manifest for manifest in everything if label(manifest) == name)


@cache
def accepted_as_it_is(api: Api, name: str) -> bool:
    return api.apply([named(name)]).accepted


def changed(manifest: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with another value at a path of keys and numbers, or without it."""
    copy: Any = deepcopy(dict(manifest))
    *way, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    inner = copy
    for part in way:
        inner = inner[part]
    if value is GONE:
        del inner[last]
    else:
        inner[last] = value
    return dict(copy)


@pytest.mark.parametrize(("name", "path", "value", "reason"), REFUSED)
def test_what_is_wrong_is_refused(api: Api, name: str, path: str, value: object, reason: str) -> None:
    assert accepted_as_it_is(api, name)
    outcome = api.apply([changed(named(name), path, value)])
    assert not outcome.accepted
    assert reason in outcome.text


@pytest.fixture
def topic(api: Api) -> Iterator[dict[str, Any]]:
    """A topic that exists in a namespace whose log is kept."""
    topic = changed(named("KafkaTopic/order.events"), "metadata.namespace", TEST_NAMESPACE)
    require(api.apply([topic], dry=False))
    yield topic
    allowed = changed(topic, "metadata.annotations", {"daybook/delete": "yes"})
    require(api.apply([allowed], dry=False))
    require(api.delete(allowed, dry=False))


def test_a_topic_is_not_deleted_by_accident(api: Api, topic: dict[str, Any]) -> None:
    outcome = api.delete(topic)
    assert not outcome.accepted
    assert "annotate it with daybook/delete=yes first" in outcome.text


def test_a_topic_keeps_its_partitions(api: Api, topic: dict[str, Any]) -> None:
    outcome = api.apply([changed(topic, "spec.partitions", 4)])
    assert not outcome.accepted
    assert "docs/how-to/add-partitions.md" in outcome.text
    assert api.apply(
        [
            changed(
                changed(topic, "spec.partitions", 4), "metadata.annotations", {"daybook/repartitioned": "yes"}
            )
        ]
    ).accepted
