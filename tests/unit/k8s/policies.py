"""What every rendered manifest must keep to. A policy yields the reasons why one does not, and nothing where all do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import yaml

from contracts.kafka_address import SCHEME
from infra.log.rights import Right, principals, rights
from infra.log.topics import catalogue, mirrored_topics
from tests.unit.k8s.manifests import ROOT, Manifests, label, of_kind, pods, selects

Policy: TypeAlias = Callable[[Manifests], Iterator[str]]

OWN_IMAGES = ("daybook-services", "daybook-analytics", "daybook-connect-strimzi")
# The digest of a published image cannot be read where there is no registry; the overlay is for trying out.
WITHOUT_DIGEST = {"postgres:18"}
STRIMZI_WORKLOADS = ("KafkaNodePool", "KafkaConnect", "KafkaMirrorMaker2", "KafkaBridge")
GRACE_SECONDS = 15  # of services/edge/server.py
# Secrets that infra/k8s/make-secrets prints, and those that Strimzi makes for a cluster, a site and its users.
SECRETS = {
    "projection-database", "query-database", "guard-database", "database-superuser", "postgres", "hash-key", "office",
    "daybook-cluster-ca-cert", "peer-cluster-ca-cert",
}  # fmt: skip


def limits(manifests: Manifests) -> Iterator[str]:
    """A node plans with requests, and a neighbour is safe by limits."""
    sizes: list[tuple[str, Any]] = [
        (f"{pod.owner}: {container['name']}", container.get("resources"))
        for pod in pods(manifests)
        for container in pod.containers
    ]
    sizes += [
        (label(resource), resource["spec"].get("resources"))
        for resource in of_kind(manifests, *STRIMZI_WORKLOADS)
    ]
    for kafka in of_kind(manifests, "Kafka"):
        operators = kafka["spec"]["entityOperator"]
        parts = {name: operators[name] for name in ("topicOperator", "userOperator")}
        if "cruiseControl" in kafka["spec"]:
            parts["cruiseControl"] = kafka["spec"]["cruiseControl"]
        sizes += [(f"{label(kafka)}: {name}", part.get("resources")) for name, part in parts.items()]
    for name, size in sizes:
        for part in ("requests", "limits"):
            if missing := {"cpu", "memory"} - set((size or {}).get(part, {})):
                yield f"{name} has no {part} of {' and '.join(sorted(missing))}"


def probes(manifests: Manifests) -> Iterator[str]:
    """What is silent is started again, and what cannot serve gets no requests; the two are different questions."""
    for pod in pods(manifests):
        for container in pod.spec["containers"] if pod.lasting else ():
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe not in container:
                    yield f"{pod.owner}: {container['name']} has no {probe}"
                elif pod.ours:
                    http_get = container[probe].get("httpGet", {})
                    path = http_get.get("path")
                    if http_get.get("port") != "health":
                        yield f"{pod.owner}: {probe} asks clients' port {http_get.get('port')}"
                    if path != f"/health/{'ready' if probe == 'readinessProbe' else 'live'}":
                        yield f"{pod.owner}: {probe} asks {path}"


def restricted(manifests: Manifests) -> Iterator[str]:
    """Restricted Pod Security, a read-only root, and no token of the API server."""
    for pod in pods(manifests):
        own = pod.spec.get("securityContext", {})
        if not own.get("runAsNonRoot") or own.get("runAsUser", 0) == 0:
            yield f"{pod.owner} may run as root"
        if own.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{pod.owner} has no seccomp profile"
        if pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.owner} has a token of the API server"
        if pod.spec.get("enableServiceLinks") is not False:
            yield f"{pod.owner} gets a variable for each Service"
        for container in pod.containers:
            context = container.get("securityContext", {})
            if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
                yield f"{pod.owner}: {container['name']} may gain rights"
            if context.get("capabilities", {}).get("drop") != ["ALL"] or context["capabilities"].get("add"):
                yield f"{pod.owner}: {container['name']} has capabilities"
            if context.get("readOnlyRootFilesystem") is not True:
                yield f"{pod.owner}: {container['name']} can write to its root"


def images(manifests: Manifests) -> Iterator[str]:
    """An image is always the same one: a digest, or ours, whose digest an operator's overlay sets."""
    named = [(pod.owner, container["image"]) for pod in pods(manifests) for container in pod.containers]
    named += [
        (label(resource), resource["spec"]["image"])
        for resource in of_kind(manifests, "KafkaConnect")
        if "image" in resource["spec"]
    ]
    for owner, image in named:
        name, _, tag = image.partition(":")
        ours = name in OWN_IMAGES and tag not in ("", "latest")
        if not (ours or "@sha256:" in image or image in WITHOUT_DIGEST):
            yield f"{owner}: {image} may be another image tomorrow"


def spread(manifests: Manifests) -> Iterator[str]:
    """A lost zone takes as little as possible; of the log, one copy."""
    lasting = [(pod.owner, pod.labels, pod.spec) for pod in pods(manifests) if pod.lasting and pod.ours]
    for owner, labels, spec in lasting:
        constraints = spec.get("topologySpreadConstraints", [])
        if not any(
            resource["topologyKey"] == "topology.kubernetes.io/zone"
            and selects(resource["labelSelector"], labels)
            for resource in constraints
        ):
            yield f"{owner} is not spread over zones"
    for pool in of_kind(manifests, "KafkaNodePool"):
        template = pool["spec"].get("template", {}).get("pod", {})
        musts = [
            resource["topologyKey"]
            for resource in template.get("topologySpreadConstraints", [])
            if resource["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        if pool["spec"]["replicas"] > 1 and musts != ["topology.kubernetes.io/zone"]:
            yield f"{label(pool)}: two copies of a record may be in one zone"


def disruption(manifests: Manifests) -> Iterator[str]:
    """A drain moves one pod of each kind at a time, and is never blocked for good."""
    budgets = [*of_kind(manifests, "PodDisruptionBudget")]
    for pod in pods(manifests):
        own = [budget for budget in budgets if selects(budget["spec"]["selector"], pod.labels)]
        if pod.lasting and len(own) != 1:
            yield f"{pod.owner} has {len(own)} PodDisruptionBudgets"
    for budget in budgets:
        if budget["spec"].get("maxUnavailable") != 1:
            yield f"{label(budget)} does not let one pod go"
        if not any(selects(budget["spec"]["selector"], pod.labels) for pod in pods(manifests)):
            yield f"{label(budget)} protects nothing"
    for resource in of_kind(manifests, "Kafka", "KafkaConnect", "KafkaMirrorMaker2", "KafkaBridge"):
        template = resource["spec"].get("kafka", resource["spec"]).get("template", {})
        if template.get("podDisruptionBudget", {}).get("maxUnavailable") != 1:
            yield f"{label(resource)} does not say how many pods a drain may take"


def listeners(manifests: Manifests) -> Iterator[str]:
    """Nobody talks to Kafka in clear text, and nobody without a name."""
    for kafka in of_kind(manifests, "Kafka"):
        for listener in kafka["spec"]["kafka"]["listeners"]:
            if listener["tls"] is not True:
                yield f"{label(kafka)}: listener {listener['name']} is in clear text"
            if "authentication" not in listener:
                yield f"{label(kafka)}: listener {listener['name']} lets everybody in"
            if not listener.get("networkPolicyPeers"):
                yield f"{label(kafka)}: listener {listener['name']} is open to every address"
        if kafka["spec"]["kafka"].get("authorization", {}).get("type") != "simple":
            yield f"{label(kafka)} allows everything to everybody"
    for client in of_kind(manifests, "KafkaConnect", "KafkaMirrorMaker2", "KafkaBridge"):
        spec = client["spec"]
        ends = [spec.get("target", spec), *(mirror["source"] for mirror in spec.get("mirrors", ()))]
        if not all("tls" in end and "authentication" in end for end in ends):
            yield f"{label(client)} connects in clear text or without a name"


def topics(manifests: Manifests) -> Iterator[str]:
    """Every topic of the catalogue, as it is there, with as many replicas as there are brokers, up to three."""
    if not (brokers := _brokers(manifests)):
        return
    present = {
        resource["metadata"]["name"]: resource["spec"] for resource in of_kind(manifests, "KafkaTopic")
    }
    expected = catalogue(min(brokers, 3))
    for name in expected.keys() ^ present.keys():
        yield f"KafkaTopic/{name} is in the {'catalogue' if name in expected else 'manifests'} alone"
    for name in expected.keys() & present.keys():
        topic, spec = expected[name], present[name]
        if (spec["partitions"], spec["replicas"], spec["config"]) != (
            topic.partitions,
            topic.replication,
            topic.config(),
        ):
            yield f"KafkaTopic/{name} is not as the catalogue says"


def users(manifests: Manifests) -> Iterator[str]:
    """Every principal of the catalogue with its rights, no more and no fewer; one super user, who does not last."""
    for kafka in of_kind(manifests, "Kafka"):
        if kafka["spec"]["kafka"]["authorization"].get("superUsers") != ["admin"]:
            yield f"{label(kafka)} has other super users than admin"
        present = {user["metadata"]["name"]: user["spec"] for user in of_kind(manifests, "KafkaUser")}
        for name in {*principals(), "admin"} ^ present.keys():
            yield f"KafkaUser/{name} is in the {'manifests' if name in present else 'catalogue'} alone"
        given = {right for name, spec in present.items() for right in _rights_of(name, spec)}
        for right in given ^ rights():
            where = "manifests" if right in given else "catalogue"
            yield f"KafkaUser/{right.principal}: {right} is in the {where} alone"
    for pod in pods(manifests):
        if pod.lasting and pod.labels.get("daybook/kafka-user") == "admin":
            yield f"{pod.owner} may do everything, and lasts"


def _rights_of(name: str, spec: Mapping[str, Any]) -> Iterator[Right]:
    for rule in spec.get("authorization", {}).get("acls", ()):
        resource = rule["resource"]
        kind = {"transactionalId": "transactional_id"}.get(resource["type"], resource["type"])
        pattern = resource["name"] + ("*" if resource["patternType"] == "prefix" else "")
        for operation in rule["operations"]:
            yield Right(name, kind, pattern, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).lower())


def identities(manifests: Manifests) -> Iterator[str]:
    """Who talks to Kafka does so by TLS, as the user whose secret it mounts, and as one of the catalogue."""
    for settings in of_kind(manifests, "ConfigMap"):
        for name, value in settings["data"].items():
            if name.endswith("KAFKA") and not value.startswith(SCHEME):
                yield f"{label(settings)}: {name} is an address in clear text"
    for pod in pods(manifests):
        if pod.labels.get("daybook/kafka-client") != "true":
            continue
        user = pod.labels.get("daybook/kafka-user", "nobody")
        if user not in {*principals(), "admin"}:
            yield f"{pod.owner} is {user}, who is not in the catalogue"
        mounted = [
            source["secret"]["name"]
            for volume in pod.spec.get("volumes", ())
            for source in volume.get("projected", {}).get("sources", ())
        ]
        if user not in mounted or {*mounted} - {user, f"peer-{user}", *SECRETS}:
            yield f"{pod.owner} is {user}, and mounts {mounted}"
        if ["infra.k8s.identity"] not in [
            container.get("args") for container in pod.spec.get("initContainers", ())
        ]:
            yield f"{pod.owner} has nobody who writes its identity"


def durability(manifests: Manifests) -> Iterator[str]:
    """An acknowledged record outlives a broker and, but for trying out, every resource."""
    for kafka in of_kind(manifests, "Kafka"):
        config, brokers = kafka["spec"]["kafka"]["config"], min(_brokers(manifests), 3)
        replicas = {key: value for key, value in config.items() if key.endswith("replication.factor")}
        in_sync = {
            key: value for key, value in config.items() if key.endswith(("min.isr", "insync.replicas"))
        }
        if len(replicas) != 4 or set(replicas.values()) != {brokers}:
            yield f"{label(kafka)} does not keep {brokers} replicas of everything: {replicas}"
        if len(in_sync) != 3 or set(in_sync.values()) != {max(1, brokers - 1)}:
            yield f"{label(kafka)} acknowledges too early: {in_sync}"
        if (
            config.get("unclean.leader.election.enable") is not False
            or config.get("auto.create.topics.enable") is not False
        ):
            yield f"{label(kafka)} may elect a leader without the records, or make topics"
    for pool in of_kind(manifests, "KafkaNodePool"):
        for volume in pool["spec"]["storage"].get("volumes", ()):
            if volume.get("deleteClaim") is not False:
                yield f"{label(pool)}: volume {volume['id']} goes with its resource"


def _brokers(manifests: Manifests) -> int:
    pools = of_kind(manifests, "KafkaNodePool")
    return sum(pool["spec"]["replicas"] for pool in pools if "broker" in pool["spec"]["roles"])


def mirror(manifests: Manifests) -> Iterator[str]:
    """The mirrored topics, and no other; committed records only, once, under the same names."""
    expected = "|".join(name.replace(".", "\\.") for name in mirrored_topics())
    for resource in of_kind(manifests, "KafkaMirrorMaker2"):
        for flow in resource["spec"]["mirrors"]:
            config = flow["sourceConnector"]["config"]
            if flow.get("topicsPattern") != expected:
                yield f"{label(resource)} copies {flow.get('topicsPattern')}, the catalogue says {expected}"
            if not str(config.get("replication.policy.class", "")).endswith(".IdentityReplicationPolicy"):
                yield f"{label(resource)} renames topics"
            if config.get("source.consumer.isolation.level") != "read_committed":
                yield f"{label(resource)} copies aborted records"
        if resource["spec"]["target"]["config"].get("exactly.once.source.support") != "enabled":
            yield f"{label(resource)} doubles records when it is killed"


def from_files(text: str) -> Mapping[str, Any]:
    """The content of a file of the repository, as YAML or JSON."""
    content: Mapping[str, Any] = yaml.safe_load((ROOT / text).read_text("utf-8"))
    return content
