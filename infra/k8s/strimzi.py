"""Strimzi's resources that follow from `contracts/topics.yaml`: one KafkaTopic for each topic, in `kafka/topics/`.

`./daybook contracts lock` writes them, `./daybook contracts check` compares them with the catalogue. They are made for
three brokers; the overlay `single` changes the number of replicas of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.log.topics import Topic, catalogue

ROOT = Path(__file__).parent
TOPICS = "kafka/topics"
BROKERS = 3
CLUSTER = "daybook"
HEADER = "# Generated from contracts/topics.yaml by `./daybook contracts lock`; do not edit.\n"


def resources() -> dict[str, str]:
    """The text of each generated file, by its path below this folder."""
    topics = catalogue(BROKERS).values()
    files = {f"{TOPICS}/{topic.name}.yaml": _text(topic_resource(topic), topic.about) for topic in topics}
    return files | {f"{TOPICS}/kustomization.yaml": _text(_kustomization(files))}


def topic_resource(topic: Topic) -> dict[str, Any]:
    """The KafkaTopic of one entry of the catalogue."""
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": topic.name, "labels": {"strimzi.io/cluster": CLUSTER}},
        "spec": {
            "partitions": topic.partitions,
            "replicas": topic.replication,
            "config": topic.config(),
        },
    }


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
    present = {path.relative_to(root).as_posix(): path for path in (root / TOPICS).glob("*.yaml")}
    for path, text in texts.items():
        if path not in present or present[path].read_text("utf-8") != text:
            yield path
    yield from sorted(present.keys() - texts.keys())


def _kustomization(files: Iterable[str]) -> dict[str, Any]:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [Path(file).name for file in files],
    }


def _text(resource: Mapping[str, Any], about: str = "") -> str:
    comment = f"# {about}\n" if about else ""
    return HEADER + comment + yaml.safe_dump(resource, sort_keys=False, width=120)
