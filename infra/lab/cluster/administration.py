"""Administration of a cluster, as an operator does it: its layout, topics, moves, elections and settings in force."""

import re
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from contracts.kafka_address import bootstrap_of, identity_file, secured
from infra.base.errors import DaybookError, NotReady
from infra.base.settings import CLUSTER
from infra.base.waiting import wait_until
from infra.log.topics import catalogue, create_topics, ensure_site, leaderless, settings_in_force
from infra.stack.embedded.java import classpath, find_java
from infra.stack.embedded.kafka import kafka_environment
from infra.stack.mirror_settings import property_lines
from services.kernel.log import clients
from services.kernel.log.clients import Connection

REPLICAS, IN_SYNC = CLUSTER, CLUSTER - 1
DURABLE = {"min.insync.replicas": str(IN_SYNC), "unclean.leader.election.enable": "false"}
SECONDS = 60.0
TOOL_SECONDS, REASSIGN_SECONDS = 180.0, 300.0
FOLLOWS_MS = 1_500  # shorter than the start of the program that reads it
ATTEMPTS = 3
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
UNREGISTER = "org.apache.kafka.tools.ClusterTool unregister"


class ToolFailed(DaybookError):
    """A command-line program of Kafka ended with an error; the text is its output."""


class NotDurable(NotReady):
    """The cluster runs and would lose records; the text has a line for each setting that is wrong."""


@contextmanager
def connection_file(address: str) -> Iterator[str]:
    """A file with what a program of Kafka needs to connect, for the time of the block; only its owner may read it."""
    with NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(property_lines(Connection(address).java()))
        file.flush()
        yield file.name


def run_tool(main: str, address: str, *arguments: str, to: str = "server", jars: str = "kafka") -> str:
    """The output of a program of Kafka: the Java class `main` (and a subcommand whose options follow) of a set of jars.

    `address` is that of the brokers, or, with `to` controller, of the controllers. Raises ToolFailed.
    """
    # It lives for seconds: code that compiles fast halves them.
    java = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    name = main.rpartition(".")[2]
    with connection_file(address) as options:
        where = (f"--bootstrap-{to}", bootstrap_of(address), "--command-config", options)
        command = [*java, "-cp", classpath(jars), *main.split(), *where, *arguments]
        try:
            environment = kafka_environment()
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=TOOL_SECONDS
            )
        except subprocess.TimeoutExpired as slow:
            raise ToolFailed(f"{name} took longer than {TOOL_SECONDS:.0f} s") from slow
    if done.returncode:
        output = (done.stdout + done.stderr).strip()[-2000:]
        raise ToolFailed(f"{name} ended with {done.returncode}:\n{output}")
    return done.stdout


@dataclass(frozen=True)
class Replicas:
    """One partition: `leader` is -1 where there is none; the first of `all` is the preferred leader."""

    leader: int
    all: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Every partition, internal topics included, by (topic, partition)."""

    partitions: Mapping[tuple[str, int], Replicas]

    def behind(self) -> list[tuple[str, int]]:
        """Partitions with a replica that is not in sync, or without a leader."""
        return [
            partition
            for partition, replicas in self.partitions.items()
            if replicas.leader < 0 or set(replicas.all) != set(replicas.in_sync)
        ]

    def leaders(self) -> Counter[int]:
        """How many partitions each broker leads."""
        return Counter(replicas.leader for replicas in self.partitions.values())

    def led_by(self, broker: int) -> list[tuple[str, int]]:
        """The partitions that this broker leads."""
        return [partition for partition, replicas in self.partitions.items() if replicas.leader == broker]

    def not_preferred(self) -> list[tuple[str, int]]:
        """Partitions that another replica than the preferred one leads."""
        return [
            partition for partition, replicas in self.partitions.items() if replicas.leader != replicas.all[0]
        ]


def read_layout(admin: AdminClient) -> Layout:
    """Raises KafkaException where no broker responds."""
    return Layout(
        {
            (topic, number): Replicas(about.leader, tuple(about.replicas), tuple(about.isrs))
            for topic, described in admin.list_topics(timeout=SECONDS).topics.items()
            for number, about in described.partitions.items()
        }
    )


def create_assigned(
    bootstrap: str, name: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str] = DURABLE
) -> None:
    """Create a topic whose partitions are on these brokers, the preferred leader first, and wait until every broker
    has its metadata. Raises KafkaException, TimeoutError."""
    assignment = [list(brokers) for brokers in replicas]
    new = NewTopic(name, len(assignment), replica_assignment=assignment, config=dict(config))
    admin = clients.admin(bootstrap)  # its futures end with it
    for future in admin.create_topics([new]).values():
        future.result(SECONDS)
    _await_leaders(bootstrap, [name])


def _await_leaders(bootstrap: str, names: Collection[str]) -> None:
    """Wait until every broker names a leader for each partition of these topics. Raises TimeoutError."""
    identity = identity_file(bootstrap)
    for broker in clients.admin(bootstrap).list_topics(timeout=SECONDS).brokers.values():
        address = f"{broker.host}:{broker.port}"
        own = address if identity is None else secured(address, identity)
        wait_until(partial(_has_leaders, own, names), f"broker {broker.id} has all leaders", SECONDS)


def _has_leaders(address: str, names: Collection[str]) -> bool:
    """Whether the broker at `address` has these topics and their leaders: a new client has no other broker."""
    return not leaderless(clients.admin(address), names)


def reassign(bootstrap: str, plan: Mapping[tuple[str, int], Sequence[int]], folder: Path) -> float:
    """Move partitions to these brokers, the preferred leader first, and wait until all replicas are there.

    Returns the seconds it took; `folder` keeps the plan. Raises ToolFailed, TimeoutError.
    """
    moves = [
        {"topic": topic, "partition": number, "replicas": list(brokers)}
        for (topic, number), brokers in plan.items()
    ]
    file = folder / "reassignment.json"
    file.write_bytes(msgspec.json.encode({"version": 1, "partitions": moves}))
    began = time.monotonic()
    options = (bootstrap, "--reassignment-json-file", str(file))
    run_tool(REASSIGN, *options, "--execute")
    while "still in progress" in run_tool(REASSIGN, *options, "--verify"):
        if time.monotonic() > began + REASSIGN_SECONDS:
            raise TimeoutError(f"partitions are still moving after {REASSIGN_SECONDS:.0f} s")
    return time.monotonic() - began


def elect_preferred(bootstrap: str) -> None:
    """Give every partition back to its preferred leader. Raises ToolFailed."""
    _elect(bootstrap, "preferred", "--all-topic-partitions")


def elect_unclean(bootstrap: str, topic: str, partition: int) -> None:
    """Let a replica lead that is not in sync: records that it does not have are lost. Raises ToolFailed."""
    _elect(bootstrap, "unclean", "--topic", topic, "--partition", str(partition))


def _elect(bootstrap: str, kind: str, *which: str) -> None:
    """With Kafka's own program: confluent-kafka 2.16 cannot pass time-outs to `elect_leaders`.

    Repeated where no broker responded in time, as happens while one comes back.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            run_tool(ELECTION, bootstrap, "--election-type", kind, *which)
            return
        except ToolFailed as error:
            if attempt == ATTEMPTS or "TimeoutException" not in str(error):
                raise


def create_replicated(bootstrap: str) -> None:
    """Create the topics that are missing, and the site's first records."""
    create_topics(bootstrap, catalogue(CLUSTER))
    _await_leaders(bootstrap, catalogue(CLUSTER))
    ensure_site(bootstrap)


@dataclass(frozen=True)
class Quorum:
    """The controller that leads, and how long ago the slowest of the others had everything, in milliseconds: -1 where
    one of them has not been there since this one leads."""

    leader: int
    lag_ms: int

    @property
    def complete(self) -> bool:
        return 0 <= self.lag_ms < FOLLOWS_MS


def read_quorum(controllers: str) -> Quorum:
    """Raises ToolFailed where no controller leads."""
    output = run_tool(QUORUM, controllers, "describe", "--status", to="controller")
    about = dict(re.findall(r"^(LeaderId|MaxFollowerLagTimeMs):\s+(-?\d+)$", output, re.MULTILINE))
    return Quorum(int(about["LeaderId"]), int(about["MaxFollowerLagTimeMs"]))


def metadata_version(bootstrap: str, jars: str) -> str:
    """The version in which the controllers write the cluster's metadata, like 4.3-IV0. Older jars do not know the
    names of newer ones. Raises ToolFailed."""
    output = run_tool(FEATURES, bootstrap, "describe", jars=jars)
    (version,) = re.findall(r"metadata\.version\s.*FinalizedVersionLevel:\s*(\S+)", output)
    return str(version)


def upgrade_metadata(bootstrap: str, release: str, jars: str) -> None:
    """Let the controllers write as this release does: no node can go back after it. Raises ToolFailed."""
    run_tool(FEATURES, bootstrap, "upgrade", "--release-version", release, jars=jars)


def require_durable(bootstrap: str, controllers: str, folder: Path) -> None:
    """Read back what is in force on topics, brokers and controllers. Raises NotDurable.

    `controllers` are their addresses; `folder` keeps what was read, as evidence.
    """
    admin = clients.admin(bootstrap)
    wrong = [
        *_topics(admin),
        *_brokers(admin),
        *_controllers(controllers, folder / "controller-settings.txt"),
    ]
    if wrong:
        raise NotDurable("the cluster does not keep records safe:\n" + "\n".join(wrong))


def _topics(admin: AdminClient) -> Iterator[str]:
    layout = read_layout(admin)
    for (topic, number), replicas in layout.partitions.items():
        if len(replicas.all) != REPLICAS:
            yield f"{topic}/{number} has {len(replicas.all)} replicas, not {REPLICAS}"
    names = sorted({topic for topic, _ in layout.partitions})
    for name, settings in settings_in_force(admin, names).items():
        yield from _not_durable(f"topic {name}", settings)


def _brokers(admin: AdminClient) -> Iterator[str]:
    for number in admin.list_topics(timeout=SECONDS).brokers:
        yield from _not_durable(f"broker {number}", broker_settings(admin, number))


def _controllers(addresses: str, evidence: Path) -> Iterator[str]:
    """Controllers respond only to Kafka's own programs: a section for each of them."""
    about = ("--entity-type", "brokers", "--describe", "--all")
    output = run_tool(CONFIGS, addresses, *about, to="controller")
    evidence.write_text(output)
    _, *sections = re.split(r"^All configs for broker (\d+) are:$", output, flags=re.MULTILINE)
    missing = bootstrap_of(addresses).count(",") + 1 - len(sections) // 2
    if missing:
        yield f"{missing} controllers do not report their settings"
    for number, section in zip(sections[::2], sections[1::2], strict=True):
        settings = dict(re.findall(r"^\s+([\w.]+)=(\S*)", section, re.MULTILINE))
        yield from _not_durable(f"controller {number}", settings)


def broker_settings(admin: AdminClient, number: int) -> dict[str, str]:
    """The settings of a broker that are in force."""
    return settings_in_force(admin, [str(number)], ConfigResource.Type.BROKER)[str(number)]


def _not_durable(what: str, settings: Mapping[str, str]) -> Iterator[str]:
    for name, value in DURABLE.items():
        if settings.get(name) != value:
            yield f"{what} has {name}={settings.get(name)}, not {value}"
