"""The only module that creates Kafka clients, and the options with which everything else connects.

There are four kinds of client: a `reader` reads records and reports the ends of partitions, a `follower` reads on
from given positions, a `writer` appends records, an `admin` describes topics and changes them. `options` have
librdkafka's names and win over all others.

An address is in clear text, or names the file of an `KafkaIdentity` (`contracts/kafka_address.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ssl import SSLContext, TLSVersion, create_default_context
from typing import Any, NamedTuple, TypeAlias

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.kafka_address import bootstrap_of, identity_file

Options: TypeAlias = Mapping[str, Any]

_MECHANISM = "SCRAM-SHA-512"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"

# librdkafka wants a name. A client under this one joins no group and commits nothing.
NO_GROUP = "daybook-reads-without-a-group"

_LIBRDKAFKA: dict[str, Any] = {
    # The default of 10 s is how long a client may look away from a broker that is back.
    "reconnect.backoff.max.ms": 500,
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


class KafkaIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who connects, as a file of JSON contains it: the certificate of the authority (PEM) by which a broker is known,
    and a user with a password (SCRAM-SHA-512), or a certificate and its key (PEM, PKCS #8), or both.

    A broker has no user. A user's certificate is for the other site, whose listener for the link insists on both."""

    authority: str
    user: str = ""
    password: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"KafkaIdentity({self.user or 'certificate'})"


@dataclass(frozen=True)
class Connection:
    """How to reach a cluster: the options that all its clients share, in the names of each kind of client.

    Options with an identity contain secrets. Every method raises KafkaException if that cannot be read.
    """

    address: str

    @property
    def bootstrap(self) -> str:
        """`host:port` of each broker, separated by commas."""
        return bootstrap_of(self.address)

    @property
    def identity(self) -> KafkaIdentity | None:
        """Who connects; None in clear text. Raises KafkaException if that cannot be read."""
        file = identity_file(self.address)
        try:
            return None if file is None else msgspec.json.decode(file.read_bytes(), type=KafkaIdentity)
        except (OSError, ValueError) as error:
            reason = f"no identity for Kafka can be read: {error}"
            raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, reason)) from error

    def librdkafka(self) -> dict[str, Any]:
        options = _LIBRDKAFKA | {"bootstrap.servers": self.bootstrap}
        match self.identity:
            case None:
                return options
            case KafkaIdentity(user="") as own:
                own_options = {"security.protocol": "SSL"}
            case own:
                own_options = {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": _MECHANISM,
                    "sasl.username": own.user,
                    "sasl.password": own.password,
                }
        if own.certificate:
            own_options |= {"ssl.certificate.pem": own.certificate, "ssl.key.pem": own.key}
        return options | own_options | {"ssl.ca.pem": own.authority}

    def java(self, prefix: str = "") -> dict[str, str]:
        """For Kafka's own tools, Connect (`prefix` none), MirrorMaker2 (`<cluster>.`) and Spark (`kafka.`)."""
        options = {"bootstrap.servers": self.bootstrap}
        match self.identity:
            case None:
                own_options = {}
            case KafkaIdentity(user="") as own:
                own_options = {"security.protocol": "SSL", **_tls(own)}
            case own:
                own_options = {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": _MECHANISM,
                    "sasl.jaas.config": f'{_LOGIN} username="{own.user}" password="{own.password}";',
                    **_tls(own),
                }
        return {f"{prefix}{name}": value for name, value in (options | own_options).items()}

    def faust(self) -> dict[str, Any]:
        """For a Faust app, which hands them on to aiokafka."""
        brokers: dict[str, Any] = {"broker": f"kafka://{self.bootstrap}"}
        if (own := self.identity) is None:
            return brokers
        from faust import SASLCredentials

        credentials = SASLCredentials(
            mechanism=_MECHANISM, username=own.user, password=own.password, ssl_context=_trusting(own)
        )
        return brokers | {"broker_credentials": credentials}

    def aiokafka(self) -> dict[str, Any]:
        """For a client of aiokafka; an identity must have a password."""
        brokers: dict[str, Any] = {"bootstrap_servers": self.bootstrap}
        if (own := self.identity) is None:
            return brokers
        return brokers | {
            "security_protocol": "SASL_SSL",
            "ssl_context": _trusting(own),
            "sasl_mechanism": _MECHANISM,
            "sasl_plain_username": own.user,
            "sasl_plain_password": own.password,
        }


def _trusting(own: KafkaIdentity) -> SSLContext:
    trusted = create_default_context(cadata=own.authority)
    trusted.minimum_version = TLSVersion.TLSv1_3
    return trusted


def _tls(own: KafkaIdentity) -> dict[str, str]:
    certified = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": own.certificate,
        "ssl.keystore.key": own.key,
    }
    return (certified if own.certificate else {}) | {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": own.authority,
        "ssl.enabled.protocols": "TLSv1.3",
    }


def reader(address: str, options: Options | None = None) -> Consumer:
    """A consumer of committed records, to be assigned; the end of a partition comes as an error."""
    return Consumer(Connection(address).librdkafka() | _READER | dict(options or {}))


def follower(
    address: str, positions: Iterable[TopicPartition] = (), options: Options | None = None
) -> Consumer:
    """A consumer of committed records from these positions on; without positions the caller assigns them."""
    consumer = Consumer(Connection(address).librdkafka() | _FOLLOWER | dict(options or {}))
    if assigned := list(positions):
        consumer.assign(assigned)
    return consumer


def writer(address: str, options: Options | None = None) -> Producer:
    """A producer whose records are acknowledged by every replica in sync and written once."""
    return Producer(Connection(address).librdkafka() | _WRITER | dict(options or {}))


def admin(address: str, options: Options | None = None) -> AdminClient:
    return AdminClient(Connection(address).librdkafka() | dict(options or {}))


class NewRecord(NamedTuple):
    """A record to append; without a `value` it is a tombstone."""

    topic: str
    key: str | bytes
    value: bytes | None
    partition: int = -1  # chosen by the key
    headers: Sequence[tuple[str, bytes]] = ()


def deliver(producer: Producer, records: Iterable[NewRecord], seconds: float) -> None:
    """Append the records. Raises TimeoutError, with the broker's reason, unless all are written in time."""
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(f"{message.topic()} did not take a record: {error.str()}")

    for topic, key, value, partition, headers in records:
        producer.produce(topic, value, key, partition, headers=list(headers), on_delivery=delivered)
    if (waiting := producer.flush(seconds)) or refused:
        raise TimeoutError((*refused, f"{waiting} records were not written within {seconds:.0f} s")[0])
