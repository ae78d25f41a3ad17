"""Strimzi's resources that follow from `contracts/topics.yaml`: KafkaTopics in `kafka/topics/`, KafkaUsers with their
rights in `kafka/users/`.

`./daybook contracts lock` writes them, `./daybook contracts check` compares them with the catalogue. They are made for
three brokers; the overlay `single` changes the number of replicas of all of them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.log.rights import Right, principals, quotas, rights
from infra.log.topics import Topic, catalogue

ROOT = Path(__file__).parent
TOPICS, USERS = "kafka/topics", "kafka/users"
# Programs that Strimzi runs prove themselves with a certificate, our own with a password.
CERTIFIED = ("mirror", "connect")
KINDS = {"transactional_id": "transactionalId"}
QUOTAS = {"producer_byte_rate": "producerByteRate", "consumer_byte_rate": "consumerByteRate"}
BROKERS = 3
CLUSTER = "daybook"
HEADER = "# Generated from contracts/topics.yaml by `./daybook contracts lock`; do not edit.\n"


def resources() -> dict[str, str]:
    """The text of each generated file, by its path below this folder."""
    own: dict[str, list[Right]] = defaultdict(list)
    for right in sorted(rights()):
        own[right.principal].append(right)
    topics = {
        f"{TOPICS}/{topic.name}.yaml": _text(topic_resource(topic), topic.about)
        for topic in catalogue(BROKERS).values()
    }
    users = {f"{USERS}/{name}.yaml": _text(user_resource(name, own[name])) for name in principals()}
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    lists = {
        f"{folder}/kustomization.yaml": _text({**head, "resources": [Path(file).name for file in files]})
        for folder, files in ((TOPICS, topics), (USERS, users))
    }
    return topics | users | lists


def topic_resource(topic: Topic) -> dict[str, Any]:
    """The KafkaTopic of one entry of the catalogue."""
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": topic.name, "labels": {"strimzi.io/cluster": CLUSTER}},
        "spec": {"partitions": topic.partitions, "replicas": topic.replication, "config": topic.config()},
    }


def user_resource(name: str, own: Collection[Right]) -> dict[str, Any]:
    """The KafkaUser of a principal with its rights and quotas."""
    operations: dict[tuple[str, str], list[str]] = defaultdict(list)
    for right in own:
        operations[right.kind, right.name].append(right.operation.title().replace("_", ""))
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": CLUSTER}},
        "spec": {
            "authentication": {"type": "tls" if name in CERTIFIED else "scram-sha-512"},
            "authorization": {
                "type": "simple",
                "acls": [
                    {"resource": _pattern(*resource), "operations": names}
                    for resource, names in operations.items()
                ],
            },
            **_quotas(name),
        },
    }


def _quotas(name: str) -> dict[str, Any]:
    own = quotas().get(name, {})
    strimzi = {QUOTAS[kafka]: round(rate) for kafka, rate in own.items()}
    return {"quotas": strimzi} if strimzi else {}


def _pattern(kind: str, name: str) -> dict[str, str]:
    pattern = "prefix" if name.endswith("*") else "literal"
    return {"type": KINDS.get(kind, kind), "name": name.removesuffix("*"), "patternType": pattern}


def write(root: Path = ROOT) -> list[str]:
    """Write every file that differs and remove what is not generated any more. Returns the changed paths."""
    texts = resources()
    changed = list(_differing(root, texts))
    for path in changed:
        if path in texts:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(texts[path], "utf-8")
        else:
            (root / path).unlink()
    return changed


def drift(root: Path = ROOT) -> list[str]:
    """Where the files differ from the catalogue, in words."""
    return [
        f"infra/k8s/{path} does not follow from topics.yaml: run `./daybook contracts lock`"
        for path in _differing(root, resources())
    ]


def _differing(root: Path, texts: Mapping[str, str]) -> Iterator[str]:
    paths = [path for folder in (TOPICS, USERS) for path in (root / folder).glob("*.yaml")]
    present = {path.relative_to(root).as_posix(): path for path in paths}
    for path, text in texts.items():
        if path not in present or present[path].read_text("utf-8") != text:
            yield path
    yield from sorted(present.keys() - texts.keys())


def _text(resource: Mapping[str, Any], about: str = "") -> str:
    comment = f"# {about}\n" if about else ""
    return HEADER + comment + yaml.safe_dump(resource, sort_keys=False, width=120)
