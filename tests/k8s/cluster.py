"""The API server of $KUBECONFIG, through kubectl.

Everything is a dry run, except namespaces, the rules of `cluster/`, and one topic in the namespace for tests. The
namespaces stay: an API server without controllers cannot delete one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from tests.unit.k8s.manifests import Manifest, Manifests, of_kind, pods, tool

TEST_NAMESPACE = "daybook-test"
CRDS = ("kafkas.kafka.strimzi.io", "podmonitors.monitoring.coreos.com")
MANAGER = "daybook-test"


class Outcome(NamedTuple):
    """`text` is all that kubectl printed."""

    accepted: bool
    text: str


class Api:
    """Raises RuntimeError where there is no cluster, or one without Strimzi's resources."""

    def __init__(self) -> None:
        self._program = tool("kubectl") or ""
        if not self._program or not os.environ.get("KUBECONFIG"):
            raise RuntimeError(
                "no cluster: set KUBECONFIG, and have kubectl on the PATH or in $DAYBOOK_K8S_TOOLS/bin"
            )
        for crd in CRDS:
            if not (outcome := self._run("get", "crd", crd)).accepted:
                raise RuntimeError(f"install Strimzi and Prometheus' operator first: {outcome.text}")

    def _run(self, *arguments: str, manifests: Manifests = ()) -> Outcome:
        done = subprocess.run(
            [self._program, "--request-timeout=30s", *arguments],
            input=yaml.safe_dump_all(manifests),
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcome(done.returncode == 0, done.stdout + done.stderr)

    def apply(self, manifests: Manifests, *, dry: bool = True) -> Outcome:
        """Strict: an unknown field or a warning is an error."""
        run = ["--dry-run=server"] if dry else []
        return self._run(
            "apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}", "--validate=strict",
            "--warnings-as-errors", *run, "-f", "-", manifests=manifests,
        )  # fmt: skip

    def delete(self, manifest: Manifest, *, dry: bool = True) -> Outcome:
        run = ["--dry-run=server"] if dry else []
        return self._run("delete", "--wait=false", *run, "-f", "-", manifests=[manifest])

    def prepare(self, manifests: Manifests) -> None:
        """Create the namespaces of `manifests` that are missing. Raises RuntimeError."""
        for namespace in of_kind(manifests, "Namespace"):
            if not self._run("get", "namespace", namespace["metadata"]["name"]).accepted:
                require(self.apply([namespace], dry=False))


def require(outcome: Outcome) -> None:
    if not outcome.accepted:
        raise RuntimeError(outcome.text)


def single_pods(manifests: Manifests, namespace: str) -> Sequence[Mapping[str, Any]]:
    """Each workload's pod by itself: Pod Security and the rule about pods refuse pods, not what makes them."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod.owner.partition("/")[2],
                "namespace": namespace,
                "labels": dict(pod.labels),
            },
            # a volume that its StatefulSet would make
            "spec": {**pod.spec, "volumes": [*pod.spec.get("volumes", ()), *_claimed(pod.spec)]},
        }
        for pod in pods(manifests)
    ]


def _claimed(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    present = {volume["name"] for volume in spec.get("volumes", ())}
    mounted = {
        mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", ())
    }
    return [{"name": name, "emptyDir": {}} for name in sorted(mounted - present)]
