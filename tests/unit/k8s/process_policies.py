"""What manifests must keep to so that the shop's own processes work: settings, secrets, slots, flows, references."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from infra.log.topics import catalogue
from tests.unit.k8s.manifests import K8S, ROOT, Manifests, Pod, label, of_kind, pods, selects
from tests.unit.k8s.policies import GRACE_SECONDS, SECRETS

_SETTING = re.compile(r"^    (\w+): ", re.MULTILINE)


def modules(manifests: Manifests) -> Iterator[str]:
    """A pod of ours runs a module of this tree."""
    for pod in pods(manifests):
        for container in pod.containers if pod.ours else ():
            path = ROOT / container.get("args", ["nothing"])[0].replace(".", "/")
            if not path.with_suffix(".py").exists():
                yield f"{pod.owner} runs {container.get('args')}, which is no module"


@cache
def setting_names() -> frozenset[str]:
    """Every field of a class of settings, as a variable; and the two that are read by hand."""
    sources = [
        path.read_text("utf-8")
        for room in ("services", "infra", "analytics")
        for path in (ROOT / room).rglob("*.py")
    ]
    fields = {
        name
        for source in sources
        if any(base in source for base in ("BaseSettings", "Settings)", "FromEnvironment)"))
        for name in _SETTING.findall(source)
    }
    return frozenset(f"DAYBOOK_{name.upper()}" for name in fields) | {"DAYBOOK_SECRETS"}


def settings(manifests: Manifests) -> Iterator[str]:
    """A setting that nobody reads is a typing error: it would be ignored silently."""
    names = [
        (label(resource), name) for resource in of_kind(manifests, "ConfigMap") for name in resource["data"]
    ]
    for pod in pods(manifests):
        names += [
            (pod.owner, entry["name"]) for container in pod.containers for entry in container.get("env", ())
        ]
    for owner, name in names:
        if name.startswith("DAYBOOK_") and name not in setting_names():
            yield f"{owner}: nobody reads {name}"


def secrets(manifests: Manifests) -> Iterator[str]:
    """Secrets are files of the one pod that needs them, and never in these files."""
    for resource in of_kind(manifests, "Secret"):
        yield f"{label(resource)} is a secret in the repository"
    for pod in pods(manifests):
        for container in pod.containers:
            if "secretKeyRef" in str(container.get("env")) or "secretRef" in str(container.get("envFrom")):
                yield f"{pod.owner}: a secret is in the environment"
            for entry in container.get("env", ()):
                if re.search(r"PASSWORD(?!_FILE)|HASH_KEY|DATABASE_URL", entry["name"]):
                    yield f"{pod.owner}: {entry['name']} is written out"
        for volume in pod.spec.get("volumes", ()):
            if "secret" in volume and volume["secret"].get("defaultMode") != 0o440:
                yield f"{pod.owner}: everybody in the pod reads {volume['secret']['secretName']}"


def slots(manifests: Manifests) -> Iterator[str]:
    """Pod N owns slot N, all start together, the layout has as many slots, and nothing scales them by itself."""
    scaled = {
        (resource["spec"]["scaleTargetRef"]["kind"], resource["spec"]["scaleTargetRef"]["name"])
        for resource in of_kind(manifests, "HorizontalPodAutoscaler")
    }
    layouts = {
        resource["spec"]["template"]["spec"]["containers"][0]["args"][1]: resource["spec"]["template"][
            "spec"
        ]["containers"][0]["args"][2]
        for resource in of_kind(manifests, "Job")
        if resource["metadata"]["name"].startswith("layout-")
    }
    for resource in of_kind(manifests, "StatefulSet", "Deployment"):
        service, _, part = resource["metadata"]["name"].rpartition("-")
        if part != "worker":
            continue
        if resource["kind"] != "StatefulSet" or resource["spec"].get("podManagementPolicy") != "Parallel":
            yield f"{label(resource)}: a slot waits for another one"
        if _ordinal(resource, "DAYBOOK_SLOT") != "metadata.labels['apps.kubernetes.io/pod-index']":
            yield f"{label(resource)}: its pods do not know their slots"
        if (resource["kind"], resource["metadata"]["name"]) in scaled:
            yield f"{label(resource)} is scaled by itself"
        if (number := resource["spec"]["replicas"]) > 1 and layouts.get(service) != str(number):
            yield f"{label(resource)} has {number} pods, the layout {layouts.get(service, 'one slot')}"
        if number > catalogue()[f"{service}.commands"].partitions:
            yield f"{label(resource)} has more slots than partitions"


def replicas(manifests: Manifests) -> Iterator[str]:
    """A write API reads the partition of its pod's number; no autoscaler makes more pods than partitions."""
    for resource in of_kind(manifests, "StatefulSet", "Deployment"):
        if resource["metadata"]["name"] not in ("order-api", "inventory-api"):
            continue
        if (
            resource["kind"] != "StatefulSet"
            or _ordinal(resource, "DAYBOOK_REPLICA") != "metadata.labels['apps.kubernetes.io/pod-index']"
        ):
            yield f"{label(resource)}: its pods do not know their partitions"
    for resource in of_kind(manifests, "HorizontalPodAutoscaler"):
        target, most = resource["spec"]["scaleTargetRef"], resource["spec"]["maxReplicas"]
        if (
            target["name"] in ("order-api", "inventory-api")
            and most > catalogue()["order.outcomes"].partitions
        ):
            yield f"{label(resource)}: {most} pods share fewer partitions"
        if not any(label(other) == f"{target['kind']}/{target['name']}" for other in manifests):
            yield f"{label(resource)} scales nothing"
        if any(
            "replicas" in other["spec"]
            for other in manifests
            if label(other) == f"{target['kind']}/{target['name']}"
        ):
            yield f"{label(resource)}: each apply takes back what it decided"


def _ordinal(workload: Mapping[str, Any], variable: str) -> str | None:
    entries = workload["spec"]["template"]["spec"]["containers"][0].get("env", ())
    paths = (
        resource["valueFrom"]["fieldRef"]["fieldPath"]
        for resource in entries
        if resource["name"] == variable and "valueFrom" in resource
    )
    return next(paths, None)


def grace(manifests: Manifests) -> Iterator[str]:
    """Clients of what is stopped get their responses: first no new requests, then the server's own grace."""
    for pod in pods(manifests):
        if pod.labels.get("daybook/entrance") != "true":
            continue
        for container in pod.spec["containers"]:
            pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            if pause < 5:
                yield f"{pod.owner}: requests still come when it stops"
            if pod.spec.get("terminationGracePeriodSeconds", 30) < pause + GRACE_SECONDS + 5:
                yield f"{pod.owner} is killed while requests run"


def hosts(manifests: Manifests) -> Iterator[str]:
    """Probes and Prometheus call a pod by its address, which it must allow; a variable is known only after its line."""
    for pod in pods(manifests):
        if not (pod.ours and pod.lasting):
            continue
        names = [entry["name"] for entry in pod.spec["containers"][0].get("env", ())]
        allowed = next(
            (
                entry["value"]
                for entry in pod.spec["containers"][0].get("env", ())
                if entry["name"] == "DAYBOOK_ALLOWED_HOSTS"
            ),
            "",
        )
        if "$(POD_IP)" not in allowed or "POD_IP" not in names[: names.index("DAYBOOK_ALLOWED_HOSTS")]:
            yield f"{pod.owner} refuses its own probes"


def flows(manifests: Manifests) -> Iterator[str]:
    """Everything is denied, and each policy that allows something is about a pod that exists."""
    policies = [*of_kind(manifests, "NetworkPolicy")]
    everywhere = [
        resource
        for resource in policies
        if not resource["spec"]["podSelector"] and not {"ingress", "egress"} & set(resource["spec"])
    ]
    if [*of_kind(manifests, "Namespace")] and not any(
        set(resource["spec"]["policyTypes"]) == {"Ingress", "Egress"} for resource in everywhere
    ):
        yield "no policy denies what no other one allows"
    labels = [pod.labels for pod in pods(manifests)] + [*_strimzi_labels(manifests)]
    for resource in policies:
        if not any(selects(resource["spec"]["podSelector"], own) for own in labels):
            yield f"{label(resource)} is about no pod"
        for rule in [*resource["spec"].get("ingress", ()), *resource["spec"].get("egress", ())]:
            if not rule.get("ports") and not rule.get("to") and not rule.get("from"):
                yield f"{label(resource)} allows everything"


def _strimzi_labels(manifests: Manifests) -> Iterator[Mapping[str, str]]:
    for resource in of_kind(manifests, "Kafka", "KafkaConnect", "KafkaMirrorMaker2", "KafkaBridge"):
        yield {"strimzi.io/cluster": resource["metadata"]["name"], "strimzi.io/kind": resource["kind"]}


def references(manifests: Manifests) -> Iterator[str]:
    """What a pod mounts, a Service selects, and a priority names, exists."""
    users = {resource["metadata"]["name"] for resource in of_kind(manifests, "KafkaUser")}
    # `connect`, `bridge`, `analytics` lie beside a site
    maps = {resource["metadata"]["name"] for resource in of_kind(manifests, "ConfigMap")} or {
        "settings",
        "kafka-client",
    }
    claims = {resource["metadata"]["name"] for resource in of_kind(manifests, "PersistentVolumeClaim")}
    priorities = {
        path.stem.replace("priority", "daybook") for path in (K8S / "cluster").glob("priority-*.yaml")
    }
    for pod in pods(manifests):
        yield from (
            f"{pod.owner}: there is no {name}" for name in _mounted(pod, maps, claims, SECRETS | users)
        )
        if pod.spec.get("priorityClassName") not in priorities:
            yield f"{pod.owner} has no priority"
    for service in of_kind(manifests, "Service"):
        chosen = [
            pod
            for pod in pods(manifests)
            if selects({"matchLabels": service["spec"]["selector"]}, pod.labels)
        ]
        ports = {
            port["name"]
            for pod in chosen
            for container in pod.containers
            for port in container.get("ports", ())
        }
        if missing := {port["targetPort"] for port in service["spec"]["ports"]} - ports:
            yield f"{label(service)} leads to no port {missing}"


def _mounted(pod: Pod, maps: set[str], claims: set[str], names: set[str]) -> Iterator[str]:
    for container in pod.containers:
        for source in container.get("envFrom", ()):
            if "configMapRef" in source and source["configMapRef"]["name"] not in maps:
                yield f"ConfigMap {source['configMapRef']['name']}"
        volumes = {volume["name"] for volume in pod.spec.get("volumes", ())} | {"data"}
        yield from (
            f"volume {mount['name']}"
            for mount in container.get("volumeMounts", ())
            if mount["name"] not in volumes
        )
    for volume in pod.spec.get("volumes", ()):
        if "secret" in volume and volume["secret"]["secretName"] not in names:
            yield f"Secret {volume['secret']['secretName']}"
        if "persistentVolumeClaim" in volume and volume["persistentVolumeClaim"]["claimName"] not in claims:
            yield f"claim {volume['persistentVolumeClaim']['claimName']}"
