"""What a principal tries on a secured broker, and the reviewed table of what it may do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from contracts.kafka_address import sibling
from infra.log.rights import rights
from services.kernel.log import clients

PATIENT = {"socket.timeout.ms": 20_000}
SECONDS = 20.0
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._NOENT,  # librdkafka, of partitions whose leaders the broker does not name
}
Cell = tuple[str, str, str]
"""A principal, what it tried, and with which resource."""


@dataclass
class Table:
    """One table of the file: the letters of each resource and principal."""

    kind: str
    principals: list[str]
    letters: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def resources(self) -> list[str]:
        return list(dict.fromkeys(resource for _, resource in self.letters))


def reviewed() -> dict[str, Table]:
    tables: dict[str, Table] = {}
    for block in Path(__file__).with_name("rights.txt").read_text().split("\n\n"):
        head, *rows = block.strip().splitlines()
        names = head.replace("transactional id", "transactional-id").split()
        table = tables[names[0]] = Table(names[0], names[1:])
        for row in rows:
            resource, *cells = row.split()
            for principal, letters in zip(table.principals, cells, strict=True):
                table.letters[principal, resource] = letters
    return tables


TABLES = reviewed()


def allowed() -> Iterator[tuple[Cell, bool]]:
    meanings = {"P": "produce", "F": "fetch", "S": "settings", "X": "delete", "W": "transaction"}
    for table in TABLES.values():
        for (principal, resource), letters in table.letters.items():
            for letter, attempt in meanings.items():
                if letter in letters:
                    yield (principal, attempt, resource), True
            yield (principal, "delete records", resource), "X" in letters
            yield (principal, "describe", resource), table.kind == "topic" and letters != "-"
            if table.kind == "group":
                yield (principal, "positions", resource), letters == "J"
                yield (principal, "commit", resource), letters == "J"


def wrong_cells(broker: str, but: str = "") -> dict[Cell, bool]:
    """What the brokers do otherwise than the reviewed table says, tried as every principal `but` this one; `broker` is
    the address of one principal, whose file lies beside those of the others."""
    tried: dict[Cell, bool] = {}
    for principal in TABLES["topic"].principals:
        if principal != but:
            tried |= Attempts(principal, sibling(broker, principal)).all()
    expected = dict(allowed())
    assert len(tried) >= 2500
    assert {cell for cell, may in expected.items() if may and cell[0] != but} <= tried.keys()
    return {cell: did for cell, did in tried.items() if did != expected.get(cell, False)}


def more_topics() -> list[NewTopic]:
    """Those of the table that are not in the catalogue."""
    return [NewTopic(topic, 1, 1) for topic in ("mm2-offsets.home.internal", "elsewhere")]


class Attempts:
    """What one principal tries. Each method returns whether the broker allowed it, by resource."""

    def __init__(self, principal: str, address: str) -> None:
        self._principal, self._address = principal, address
        self._admin: AdminClient = clients.admin(address, PATIENT)

    def all(self) -> dict[Cell, bool]:
        topics = TABLES["topic"].resources
        described = self._admin.list_topics(timeout=SECONDS).topics
        tried = {
            "describe": {topic: topic in described for topic in topics},
            "produce": self.produce(topics),
            "fetch": self._fetch(topics),
            "settings": self._results(self._admin.describe_configs, _configs(topics)),
            "change": self._results(self._admin.incremental_alter_configs, _configs(topics, change=True)),
            "partitions": self._results(
                self._admin.create_partitions, [NewPartitions(name, 9) for name in topics]
            ),
            "delete records": self._results(
                self._admin.delete_records, [TopicPartition(name, 0, 0) for name in topics]
            ),
            "delete": self._results(self._admin.delete_topics, topics),
            "positions": self._groups(self._positions),
            "commit": self._groups(self._commit),
            "transaction": {name: self._transaction(name) for name in TABLES["transactional-id"].resources},
            "cluster": self._cluster(),
        }
        return {
            (self._principal, attempt, resource): did
            for attempt, results in tried.items()
            for resource, did in results.items()
        }

    def produce(self, topics: Iterable[str]) -> dict[str, bool]:
        errors: dict[str, KafkaError | None] = {}
        producer = clients.writer(
            self._address, PATIENT | {"message.timeout.ms": 15_000, "enable.idempotence": False}
        )
        for topic in topics:
            producer.produce(
                topic,
                b"",
                b"key",
                partition=0,
                on_delivery=lambda error, record: errors.__setitem__(record.topic(), error),
            )
        assert producer.flush(SECONDS) == 0
        return {topic: _was_allowed(error) for topic, error in errors.items()}

    def _fetch(self, topics: Iterable[str]) -> dict[str, bool]:
        """The broker does not name a topic of which it would not tell anything."""
        named = self._admin.list_topics(timeout=SECONDS).topics
        seen = {topic: False for topic in topics if topic not in named}
        consumer = clients.reader(self._address, PATIENT)
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics if topic in named])
        for _ in range(200):
            for record in consumer.consume(100, 0.1):
                error = record.error()
                if record.topic() is None:
                    continue  # about the group that it names, and does not need
                at_end = error is None or error.code() == KafkaError._PARTITION_EOF
                seen.setdefault(str(record.topic()), at_end or _was_allowed(error))
            if len(seen) == len([*topics]):
                break
        consumer.close()
        return seen

    def _groups(self, attempt: Any) -> dict[str, bool]:
        return {group: attempt(group) for group in TABLES["group"].resources}

    def _positions(self, group: str) -> bool:
        request = [ConsumerGroupTopicPartitions(group, None)]
        return _did(self._admin.list_consumer_group_offsets(request, request_timeout=SECONDS)[group])

    def _commit(self, group: str) -> bool:
        """A topic that it may read, so that the group alone decides."""
        readable = [
            t for t in TABLES["topic"].resources if "F" in TABLES["topic"].letters[self._principal, t]
        ]
        topic = next(iter(readable), "elsewhere")
        request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])]
        future = self._admin.alter_consumer_group_offsets(request, request_timeout=SECONDS)[group]
        return _did(future) and all(_was_allowed(at.error) for at in future.result().topic_partitions)

    def _transaction(self, transactional_id: str) -> bool:
        producer = clients.writer(self._address, PATIENT | {"transactional.id": transactional_id})
        try:
            producer.init_transactions(SECONDS)
        except KafkaException as error:
            return _was_allowed(error.args[0])
        return True

    def _cluster(self) -> dict[str, bool]:
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        own = [right.binding() for right in rights() if right.principal == "order-worker"][:1]
        return {
            "create topic": _did(self._admin.create_topics([NewTopic("another", 1, 1)])["another"]),
            "see rights": _sees(self._admin.describe_acls(every, request_timeout=SECONDS)),
            "grant": all(map(_did, self._admin.create_acls(own, request_timeout=SECONDS).values())),
        }

    def _results(self, request: Any, resources: list[Any]) -> dict[str, bool]:
        futures: Mapping[Any, Any] = request(resources, request_timeout=SECONDS)
        return {_name(resource): _did(future) for resource, future in futures.items()}


def _configs(topics: Iterable[str], *, change: bool = False) -> list[ConfigResource]:
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    return [
        ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry] if change else None)
        for name in topics
    ]


def _name(resource: Any) -> str:
    match resource:
        case str():
            return resource
        case TopicPartition():
            return str(resource.topic)
        case _:
            return str(resource.name)


def _sees(future: Any) -> bool:
    """librdkafka returns an empty list where the broker denies it."""
    return _did(future) and bool(future.result())


def _did(future: Any) -> bool:
    try:
        future.result(SECONDS)
    except KafkaException as error:
        return _was_allowed(error.args[0])
    return True


def _was_allowed(error: KafkaError | None) -> bool:
    """Raises KafkaException for an error that is neither success nor a denial."""
    if error is None:
        return True
    if error.code() in DENIED:
        return False
    raise KafkaException(error)


# What a client with a right identity changes, so that a broker refuses it; an empty option is left out.
REFUSED = {
    "clear text": {"security.protocol": "PLAINTEXT"},
    "no user": {"security.protocol": "SSL", "sasl.mechanism": ""},
    "a wrong password": {"sasl.password": "guessed"},
    "the user of another password": {"sasl.username": "order-worker"},
    "a broker that is not proven": {"ssl.ca.pem": ""},
}
