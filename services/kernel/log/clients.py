"""The only module that creates Kafka clients, and the options with which everything else connects.

There are four kinds of client: a `reader` reads records and reports the ends of partitions, a `follower` reads on
from given positions, a `writer` appends records, an `admin` describes topics and changes them. `options` have
librdkafka's names and win over those of the kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

Options: TypeAlias = Mapping[str, Any]

# librdkafka wants a name. A client under this one joins no group and commits nothing.
NO_GROUP = "daybook-reads-without-a-group"

# For a process that outlives its broker.
LASTING: dict[str, Any] = {
    # The default of 10 s is how long a client may look away from a broker that is back.
    "reconnect.backoff.max.ms": 500,
    # By default a client that finds all brokers down forgets those that it learned, and goes on waiting
    # for a coordinator among them: `send_offsets_to_transaction` hangs (librdkafka's issue 5511).
    "metadata.recovery.strategy": "none",
    # Fatal errors only. Level 3 writes a line for every attempt to connect, 30 a second.
    "log_level": 2,
}

_FOLLOWER = {
    "group.id": NO_GROUP,
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}
_READER = _FOLLOWER | {"enable.partition.eof": True}
# The partitioner of Java's clients, and of every reader that computes the partition of a key.
_WRITER = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random"}


@dataclass(frozen=True)
class Connection:
    """How to reach a cluster: the options that all its clients share, in the names of each kind of client.

    `bootstrap` is a list of `host:port`, separated by commas.
    """

    bootstrap: str

    def librdkafka(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap}

    def java(self, prefix: str = "") -> dict[str, str]:
        """For Kafka's own tools, Connect (`prefix` none) and MirrorMaker2 (`<cluster>.`)."""
        return {f"{prefix}bootstrap.servers": self.bootstrap}

    def spark(self) -> dict[str, str]:
        """For Spark's Kafka source."""
        return self.java("kafka.")

    def faust(self) -> dict[str, Any]:
        """For a Faust app, which hands them on to aiokafka."""
        return {"broker": f"kafka://{self.bootstrap}"}


def reader(bootstrap: str, options: Options | None = None) -> Consumer:
    """A consumer of committed records, to be assigned; the end of a partition comes as an error."""
    return Consumer(Connection(bootstrap).librdkafka() | _READER | dict(options or {}))


def follower(
    bootstrap: str, positions: Iterable[TopicPartition] = (), options: Options | None = None
) -> Consumer:
    """A consumer of committed records from these positions on; without positions the caller assigns them."""
    consumer = Consumer(Connection(bootstrap).librdkafka() | _FOLLOWER | dict(options or {}))
    if assigned := list(positions):
        consumer.assign(assigned)
    return consumer


def writer(bootstrap: str, options: Options | None = None) -> Producer:
    """A producer whose records are acknowledged by every replica in sync and written once."""
    return Producer(Connection(bootstrap).librdkafka() | _WRITER | dict(options or {}))


def admin(bootstrap: str, options: Options | None = None) -> AdminClient:
    return AdminClient(Connection(bootstrap).librdkafka() | dict(options or {}))
