"""The manifests of `infra/k8s` as objects, rendered by the kubectl or kustomize of the PATH or of $DAYBOOK_K8S_TOOLS.

`DAYBOOK_K8S_TOOLS` names a folder: its `bin` may have kubectl, kustomize and kubeconform, its `schemas` the JSON
schemas of Kubernetes, Strimzi and prometheus-operator as `GROUP/KIND_VERSION.json`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
import yaml

ROOT = Path(__file__).parents[3]
K8S = ROOT / "infra/k8s"
# What somebody applies; everything else is part of these.
ROOTS = (
    "cluster",
    "overlays/single",
    "overlays/ha",
    "overlays/two-sites/home",
    "overlays/two-sites/away",
    "overlays/monitoring",
    "overlays/connect",
    "overlays/bridge",
    "overlays/rebalance",
    "overlays/analytics",
)
TOOLS = os.environ.get("DAYBOOK_K8S_TOOLS", "")

Manifest: TypeAlias = Mapping[str, Any]
Manifests: TypeAlias = Sequence[Manifest]


class Pod(NamedTuple):
    """A pod's template: `owner` is `Kind/name` of the workload."""

    owner: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    lasting: bool

    @property
    def ours(self) -> bool:
        return self.labels.get("app.kubernetes.io/part-of") == "daybook"

    @property
    def containers(self) -> Sequence[Mapping[str, Any]]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]


def tool(*names: str) -> str | None:
    """The first of these programs, from $DAYBOOK_K8S_TOOLS or the PATH."""
    path = f"{TOOLS}/bin{os.pathsep}{os.environ.get('PATH', '')}" if TOOLS else None
    return next((program for name in names if (program := shutil.which(name, path=path))), None)


def render(folder: Path) -> Manifests:
    """What `kubectl kustomize` makes of a folder. Skips the test where no tool is there; fails on an error."""
    program = tool("kubectl", "kustomize")
    if program is None:
        pytest.skip(
            "manifests not rendered: neither kubectl nor kustomize is on the PATH or in $DAYBOOK_K8S_TOOLS/bin"
        )
    verb = "kustomize" if program.endswith("kubectl") else "build"
    done = subprocess.run([program, verb, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def of_kind(manifests: Manifests, *kinds: str) -> Iterator[Manifest]:
    return (manifest for manifest in manifests if manifest["kind"] in kinds)


def label(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def pods(manifests: Manifests) -> Iterator[Pod]:
    """The pods of all workloads that are not Strimzi's."""
    for manifest in of_kind(manifests, "Deployment", "StatefulSet", "Job", "CronJob"):
        spec = manifest["spec"].get("jobTemplate", manifest)["spec"]
        template = spec["template"]
        lasting = manifest["kind"] in ("Deployment", "StatefulSet")
        yield Pod(label(manifest), template["metadata"].get("labels", {}), template["spec"], lasting)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector with labels and expressions fits; an empty one fits everything."""
    selector = selector or {}
    fits = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    for expression in selector.get("matchExpressions", ()):
        present = labels.get(expression["key"])
        fits &= present in expression["values"] if expression["operator"] == "In" else present is not None
    return fits
