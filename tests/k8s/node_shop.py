"""The overlay `single` on a cluster whose pods run, in a namespace of its own, and its clients outside the cluster.

Strimzi's operator is not there: what it would make of its resources is made here, and one plain broker runs with the
settings of the overlay's Kafka resource (`node/`). Everything of the shop's own is what the overlay says.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from contracts.kafka_address import secured
from infra.base.ports import listening
from infra.base.waiting import wait_until
from infra.identity.authority import Authority
from infra.lab.load.clients import Api, Urls
from infra.log.rights import ADMIN, apply_rights, principals
from services.kernel.log.clients import KafkaIdentity
from tests.k8s.cluster import Api as Cluster
from tests.k8s.cluster import require
from tests.ports import free_ports
from tests.unit.k8s.manifests import K8S, Manifest, Manifests, of_kind, render, tool

NAMESPACE = "daybook-node"
NODE = Path(__file__).parent / "node"
IMAGES = ("daybook-services:0.1.0", "daybook-services:next", "apache/kafka:4.3.1", "postgres:18")
STRIMZI = "kafka.strimzi.io/"
BROKER = "daybook-single-0"
NAMES = ("daybook-kafka-bootstrap", f"{BROKER}.daybook-kafka-brokers")
CERTIFICATES = "/etc/kafka/certificates"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
WORKLOADS = (
    "statefulset/order-worker",
    "statefulset/inventory-worker",
    "statefulset/order-api",
    "statefulset/inventory-api",
    "statefulset/projection",
    "statefulset/postgres",
    "statefulset/daybook-single",
    "deployment/query-api",
    "deployment/registry",
)
SECONDS = 300.0
SITE = "home"


class NodeShop:
    """The shop in `NAMESPACE`. The files of its authority and users are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority(folder / "kafka", NAMES)
        self._secrets = list(yaml.safe_load_all(_output([str(K8S / "make-secrets"), "postgres"])))
        # the broker tells clients outside the cluster to come back by the same forwarded port
        (self._port,) = free_ports(1)
        self._cluster = Cluster()
        self._node = self._real_node()
        addresses = self._node["status"]["addresses"]
        self.address = next(own["address"] for own in addresses if own["type"] == "InternalIP")

    def start(self) -> None:
        """Returns when everything is ready. Raises RuntimeError or AssertionError."""
        self._authority.prepare([ADMIN, *principals()])
        for part in (render(K8S / "cluster"), self._before(), self._manifests()):
            require(self._cluster.apply(part, dry=False))
        self.kubectl("rollout", "status", "statefulset/daybook-single", f"--timeout={SECONDS:.0f}s")
        with self.kafka() as address:
            apply_rights(address, {user: self._identity(user).password for user in (ADMIN, *principals())})
        for job in ("site-start", "migrations"):
            self.kubectl("wait", f"job/{job}", "--for=condition=Complete", f"--timeout={SECONDS:.0f}s")
        self.await_ready()

    def remove(self, *options: str) -> None:
        """The namespace with all that is in it. Waits for the end, unless `options` of kubectl say otherwise."""
        self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s", *options)

    def kubectl(self, *arguments: str) -> str:
        """What kubectl says in the shop's namespace. Fails the test where it fails."""
        return _output([tool("kubectl") or "kubectl", "-n", NAMESPACE, *arguments])

    def read(self, *arguments: str) -> Any:
        return msgspec.json.decode(self.kubectl("get", *arguments, "-o", "json"))

    def pods(self) -> Mapping[str, str]:
        """The id of each pod that is not about to end, by name; pods of Jobs are left out."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.read("pods")["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and "job-name" not in pod["metadata"].get("labels", {})
        }

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Apply these in the shop's namespace. Raises RuntimeError."""
        moved = [
            {**manifest, "metadata": {**manifest["metadata"], "namespace": NAMESPACE}}
            for manifest in manifests
        ]
        require(self._cluster.apply(moved, dry=False))

    def await_ready(self) -> None:
        """Until every workload has as many ready pods of its newest version as it should."""
        for workload in WORKLOADS:
            self.kubectl("rollout", "status", workload, f"--timeout={SECONDS:.0f}s")

    def urls(self) -> Urls:
        """The APIs at the node's ports."""
        ports = {
            api: self.read("service", f"{api}-api-outside")["spec"]["ports"][0]["nodePort"] for api in Api
        }
        return Urls({api: f"http://{self.address}:{port}" for api, port in ports.items()})

    def images(self) -> set[str]:
        """The names of all images that the node has."""
        names = (name for image in self._node["status"]["images"] for name in image.get("names") or ())
        return {name.removeprefix("docker.io/").removeprefix("library/") for name in names}

    @property
    def node(self) -> str:
        name: str = self._node["metadata"]["name"]
        return name

    @contextmanager
    def kafka(self, user: str = ADMIN) -> Iterator[str]:
        """The address of Kafka for a user, while the broker's pod lives."""
        with self._forwarded(f"pod/{BROKER}", self._port, 9095):
            yield secured(f"localhost:{self._port}", self._authority.identity(user))

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of the read models, for whoever may read all of them."""
        secret = next(own for own in self._secrets if own["metadata"]["name"] == "database-superuser")
        password = msgspec.json.decode(secret["stringData"]["daybook_role_passwords"])["auditor"]
        (port,) = free_ports(1)
        with self._forwarded("pod/postgres-0", port, 5432):
            yield f"postgresql://auditor:{password}@localhost:{port}/daybook"

    @contextmanager
    def _forwarded(self, pod: str, own: int, there: int) -> Iterator[None]:
        program = tool("kubectl") or "kubectl"
        command = [program, "-n", NAMESPACE, "port-forward", pod, f"{own}:{there}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: listening(own), f"port {own} leads to {pod}", 30.0)
            yield
        finally:
            process.kill()
            process.wait()

    def _real_node(self) -> Mapping[str, Any]:
        """The first node that is not simulated. Any node leads to the APIs; the images must be on all of them."""
        nodes: Sequence[Mapping[str, Any]] = self.read("nodes", "-l", "type!=kwok")["items"]
        if not nodes:
            raise RuntimeError("the cluster has no node that runs pods")
        return nodes[0]

    def _identity(self, user: str) -> KafkaIdentity:
        return msgspec.json.decode(self._authority.identity(user).read_bytes(), type=KafkaIdentity)

    def _before(self) -> Manifests:
        """The namespace, and every secret that exists before anything starts: `make-secrets` and Strimzi's."""
        (namespace,) = of_kind(render(NODE), "Namespace")
        authority = self._authority.certificate.read_text()
        kafka = {
            "daybook-cluster-ca-cert": {"ca.crt": authority},
            "kafka-certificates": {"broker.pem": self._authority.keystore.read_text(), "ca.crt": authority},
            **{user: {"password": self._identity(user).password} for user in (ADMIN, *principals())},
        }
        made = [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": content}
            for name, content in kafka.items()
        ]
        metadata = {**namespace["metadata"], "name": NAMESPACE}
        secrets = [
            {**secret, "metadata": {**secret["metadata"], "namespace": NAMESPACE}}
            for secret in (*self._secrets, *made)
        ]
        return [{**namespace, "metadata": metadata}, *secrets]

    def _manifests(self) -> Manifests:
        rendered = render(NODE)
        (kafka,) = of_kind(rendered, "Kafka")
        lines = "".join(f"{name}={value}\n" for name, value in self._properties(kafka).items())
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kafka-settings", "namespace": NAMESPACE},
            "data": {"server.properties": lines},
        }
        ours = [manifest for manifest in rendered if not manifest["apiVersion"].startswith(STRIMZI)]
        return [settings, *map(self._reachable, ours)]

    def _reachable(self, manifest: Manifest) -> Manifest:
        """Clients outside call the APIs by the node's address, which must be listed."""
        if manifest["kind"] != "ConfigMap" or manifest["metadata"]["name"] != "settings":
            return manifest
        return {**manifest, "data": {**manifest["data"], "EXTRA_HOSTS": f"localhost,{self.address}"}}

    def _properties(self, kafka: Manifest) -> Mapping[str, Any]:
        """The overlay's settings of Kafka, and the listeners that Strimzi would configure. Between brokers and for the
        controller, clear text: they are one process, on the loopback interface."""
        encrypted = ("SCRAM", "FORWARDED")
        return {
            **{name: _text(value) for name, value in kafka["spec"]["kafka"]["config"].items()},
            "process.roles": "broker,controller",
            "node.id": 0,
            "controller.quorum.voters": "0@localhost:9090",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listeners": "CONTROLLER://localhost:9090,INTERNAL://localhost:9091,SCRAM://:9093,FORWARDED://:9095",
            "advertised.listeners": f"INTERNAL://localhost:9091,SCRAM://{NAMES[1]}:9093,"
            f"FORWARDED://localhost:{self._port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,"
            + ",".join(f"{name}:SASL_SSL" for name in encrypted),
            **{f"listener.name.{name.lower()}.scram-sha-512.sasl.jaas.config": LOGIN for name in encrypted},
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{CERTIFICATES}/broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{CERTIFICATES}/ca.crt",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
            "log.dirs": "/var/lib/kafka/log",
        }


def layout_job(service: str, slots: int) -> Manifest:
    """The Job of the overlay `ha` that shares a service's partitions, for another number of slots."""
    jobs = of_kind(render(K8S / "overlays/ha"), "Job")
    (job,) = [job for job in jobs if job["metadata"]["name"] == f"layout-{service}"]
    (main,) = job["spec"]["template"]["spec"]["containers"]
    main["args"] = ["infra.k8s.layout", service, str(slots)]
    return job


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
    return done.stdout
