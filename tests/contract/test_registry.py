"""Ordinary tools decode our topics: Confluent's own client and deserializer against the served lock."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import uvicorn
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from contracts.lock import load_lock
from contracts.order.commands import CancelOrder
from contracts.order.events import Charge, Line, OrderPlaced
from infra.base.ports import HOST
from infra.base.waiting import wait_until
from infra.log.registry import MEDIA_TYPE, create
from services.edge.server import server_config
from services.kernel.record.codec import decode, encode
from tests.contract.golden import FOLDER, names
from tests.ports import free_ports

SUBJECT = "order.events-daybook.order.OrderPlaced"
NAMELESS = json.dumps({"schema": '{"type": "record"}'}).encode()
PLACED = OrderPlaced(
    order_id="536365",
    country="United Kingdom",
    currency="GBP",
    occurred_at=1_291_191_960_000_001,
    lines=(Line("85123A", 6, 2_550_000),),
    customer_id="17850",
    charges=(Charge("POST", 18_000_000),),
    gross=33_300_000,
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    (port,) = free_ports(1)
    server = uvicorn.Server(server_config(create(load_lock()), HOST, port))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started, "the server listens", 30, every=0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def test_confluents_deserializer_reads_our_topic(kafka: str, client: SchemaRegistryClient) -> None:
    topic = "registry-reads-orders"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": kafka})
    early = (FOLDER / "daybook.order.OrderPlaced.v1.avro").read_bytes()
    cancel = CancelOrder("536365", "changed my mind", 5)
    for value in (early, encode("order.events", PLACED), encode("order.commands", cancel)):
        producer.produce(topic, value, "536365")
    assert producer.flush(60) == 0

    deserialize, context = AvroDeserializer(client), SerializationContext(topic, MessageField.VALUE)
    first, second, third = (deserialize(value, context) for value in _values(kafka, topic, 3))

    assert first["lines"][0]["sku"] == decode(early).lines[0].sku
    assert "gross" not in first
    assert second == {
        "order_id": "536365",
        "customer_id": "17850",
        "country": "United Kingdom",
        "currency": "GBP",
        "occurred_at": datetime(2010, 12, 1, 8, 26, 0, 1, tzinfo=UTC),
        "lines": [{"sku": "85123A", "quantity": 6, "unit_price": 2_550_000}],
        "charges": [{"code": "POST", "amount": 18_000_000}],
        "gross": 33_300_000,
        "settle_by": None,
    }
    assert third["reason"] == "changed my mind"


def _values(kafka: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        records = consumer.consume(count, timeout=60)
        return [record.value() for record in records]
    finally:
        consumer.close()


@pytest.mark.parametrize("name", names())
def test_confluents_deserializer_reads_every_golden_value(client: SchemaRegistryClient, name: str) -> None:
    context = SerializationContext("any", MessageField.VALUE)
    record = AvroDeserializer(client)((FOLDER / f"{name}.avro").read_bytes(), context)
    schema = load_lock().schema(names()[name])
    assert list(record) == [field["name"] for field in schema["fields"]]


def test_confluents_serializer_writes_what_we_read(client: SchemaRegistryClient) -> None:
    settings = {
        "auto.register.schemas": False,
        "subject.name.strategy": lambda context, name: f"{context.topic}-{name}",
    }
    text = load_lock().text(load_lock().id_of(SUBJECT))
    fields = {**vars(PLACED), "lines": [vars(PLACED.lines[0])], "charges": [vars(PLACED.charges[0])]}
    serialize = AvroSerializer(client, text, conf=settings)
    value = serialize(fields, SerializationContext("order.events", MessageField.VALUE))
    assert value == encode("order.events", PLACED)
    assert decode(value) == PLACED


def test_the_client_finds_subjects_versions_and_schemas(client: SchemaRegistryClient) -> None:
    lock = load_lock()
    early, late = lock.versions(SUBJECT)
    assert client.get_subjects() == list(lock.subjects())
    assert client.get_versions(SUBJECT) == [1, 2]
    assert client.get_latest_version(SUBJECT).schema_id == late.id
    assert client.get_version(SUBJECT, 1).schema_id == early.id
    assert json.loads(client.get_schema(early.id).schema_str) == lock.schema(early.id)
    reformatted = json.dumps({**lock.schema(early.id), "doc": "Other words."})
    assert client.lookup_schema(SUBJECT, Schema(reformatted, "AVRO")).version == 1
    assert client.get_compatibility() == "FULL_TRANSITIVE"


@pytest.mark.parametrize(
    ("path", "status", "code", "words"),
    [
        ("/subjects/nothing/versions", 404, 40401, "Subject 'nothing' not found."),
        (f"/subjects/{SUBJECT}/versions/3", 404, 40402, "Version 3 not found."),
        (f"/subjects/{SUBJECT}/versions/first", 422, 42202, "not a valid version"),
        ("/schemas/ids/99999", 404, 40403, "Schema 99999 not found"),
        ("/nowhere", 404, 404, "Not Found"),
    ],
)
def test_errors_have_confluents_format(url: str, path: str, status: int, code: int, words: str) -> None:
    response = httpx.get(url + path)
    assert response.status_code == status
    assert response.json()["error_code"] == code
    assert words in response.json()["message"]


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"schema": "{"}', b'{"schema": "5"}', NAMELESS])
def test_looking_up_an_invalid_schema_is_unprocessable(url: str, body: bytes) -> None:
    response = httpx.post(f"{url}/subjects/{SUBJECT}", content=body, headers={"Content-Type": MEDIA_TYPE})
    assert (response.status_code, response.json()["error_code"]) == (422, 42201)


def test_an_unknown_schema_is_not_found(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError) as refused:
        client.lookup_schema(SUBJECT, Schema('{"type": "record", "name": "Other", "fields": []}', "AVRO"))
    assert refused.value.error_code == 40403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"/subjects/{SUBJECT}/versions"),
        ("DELETE", f"/subjects/{SUBJECT}"),
        ("DELETE", f"/subjects/{SUBJECT}/versions/1"),
        ("PUT", "/config"),
        ("PUT", "/mode"),
    ],
)
def test_writes_are_refused_with_the_command_to_use(url: str, method: str, path: str) -> None:
    response = httpx.request(method, url + path, json={})
    assert response.status_code == 405
    assert "daybook contracts lock" in response.json()["message"]
    assert "GET" in response.headers["allow"] or "POST" in response.headers["allow"]


def test_there_is_no_redirect_that_names_the_host_of_the_request(url: str) -> None:
    response = httpx.get(f"{url}/subjects/", headers={"Host": "localhost"})
    assert (response.status_code, response.headers.get("location")) == (404, None)
    assert httpx.get(f"{url}/subjects", headers={"Host": "evil.example"}).status_code == 421


def test_where_an_id_stands(url: str) -> None:
    schema_id = load_lock().ids("daybook.kernel.OutcomeBatch")[0]
    stands: list[Any] = httpx.get(f"{url}/schemas/ids/{schema_id}/subjects").json()
    assert "order.commands-daybook.kernel.OutcomeBatch" in stands
    assert len(httpx.get(f"{url}/schemas/ids/{schema_id}/versions").json()) == len(stands) == 6


def test_health(url: str) -> None:
    assert httpx.get(f"{url}/health/live").text == "live"
    assert httpx.get(f"{url}/health/ready").text == "ready"


def test_a_client_of_apicurio_finds_every_schema(url: str) -> None:
    lock = load_lock()
    base = f"{url}/apis/registry/v2/ids/contentIds"
    for number in {entry.id for entry in lock.entries}:
        assert httpx.get(f"{base}/{number}", trust_env=False).text == lock.text(number)
        assert httpx.get(f"{base}/{number}/references", trust_env=False).json() == []
    assert httpx.get(f"{base}/9999", trust_env=False).status_code == 404
    assert httpx.get(f"{base}/9999/references", trust_env=False).status_code == 404
