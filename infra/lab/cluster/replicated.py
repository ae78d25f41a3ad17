"""The catalogue on three brokers, and the proof that what keeps records safe is in force."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource

from infra.base.errors import NotReady
from infra.lab.cluster.kafka_tool import run_tool
from infra.lab.cluster.layout import read_layout
from infra.log.topics import Topic, catalogue, create_topics, ensure_site
from services.kernel.log import clients

REPLICAS, IN_SYNC = 3, 2
WANTED = {"min.insync.replicas": str(IN_SYNC), "unclean.leader.election.enable": "false"}
CONTROLLER_NODE = "100"
ASK_SECONDS = 30.0


class NotDurable(NotReady):
    """The cluster runs and would lose records; the text has a line for each setting that is wrong."""


def replicated() -> dict[str, Topic]:
    """Every topic of the catalogue, with three replicas of which two must have each record."""
    return {
        name: replace(topic, replication=REPLICAS, min_in_sync=IN_SYNC) for name, topic in catalogue().items()
    }


def create_replicated(bootstrap: str) -> list[str]:
    """Create what is missing, and the site's first records; answers the new topics' names."""
    created = create_topics(bootstrap, replicated())
    ensure_site(bootstrap)
    return created


def require_durable(bootstrap: str, controller: str, folder: Path) -> None:
    """Read back what is in force on topics, brokers and the controller. Raises NotDurable.

    `controller` is its address; `folder` takes what was read, as evidence.
    """
    admin = clients.admin(bootstrap)
    wrong = [*_topics(admin), *_brokers(admin), *_controller(controller, folder / "controller-settings.txt")]
    if wrong:
        raise NotDurable("the cluster does not keep records safe:\n" + "\n".join(wrong))


def _topics(admin: AdminClient) -> Iterator[str]:
    layout = read_layout(admin)
    for (topic, number), at in layout.partitions.items():
        if len(at.all) != REPLICAS:
            yield f"{topic}/{number} has {len(at.all)} replicas, not {REPLICAS}"
    names = sorted({topic for topic, _ in layout.partitions})
    for name, found in in_force(admin, ConfigResource.Type.TOPIC, names).items():
        yield from _differences(f"topic {name}", found)


def _brokers(admin: AdminClient) -> Iterator[str]:
    numbers = [str(number) for number in admin.list_topics(timeout=ASK_SECONDS).brokers]
    for number, found in in_force(admin, ConfigResource.Type.BROKER, numbers).items():
        yield from _differences(f"broker {number}", found)


def _controller(address: str, evidence: Path) -> Iterator[str]:
    """A controller answers no client but Kafka's own: ask with that."""
    about = ("--entity-type", "brokers", "--entity-name", CONTROLLER_NODE, "--describe", "--all")
    said = run_tool("kafka.admin.ConfigCommand", "--bootstrap-controller", address, *about)
    evidence.write_text(said)
    yield from _differences("the controller", dict(re.findall(r"^\s+([\w.]+)=(\S*)", said, re.MULTILINE)))


def in_force(admin: AdminClient, kind: ConfigResource.Type, names: list[str]) -> dict[str, dict[str, str]]:
    """The effective settings of each topic or broker, wherever they come from."""
    found = {}
    for name in names:  # of brokers, one call takes one
        ((_, future),) = admin.describe_configs([ConfigResource(kind, name)]).items()
        found[name] = {setting: entry.value for setting, entry in future.result(ASK_SECONDS).items()}
    return found


def _differences(what: str, found: Mapping[str, str]) -> Iterator[str]:
    for name, value in WANTED.items():
        if found.get(name) != value:
            yield f"{what} has {name}={found.get(name)}, not {value}"
