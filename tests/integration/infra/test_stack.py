"""The embedded broker and PostgreSQL do what the shop builds on: transactions, and state over restarts."""

import time
import uuid
from pathlib import Path

import asyncpg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from infra.base.errors import NotReady
from infra.base.files import KEPT_BYTES
from infra.base.settings import ROOT
from infra.stack.embedded.child import Child, Program
from infra.stack.embedded.kafka import lone_broker
from infra.stack.embedded.postgres import MAJOR
from tests.ports import free_ports
from tests.postgres_server import EmbeddedPostgres
from tests.servers import NodeServer

pytestmark = pytest.mark.long


def create_topic(bootstrap: str) -> str:
    name = f"stack-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def write_transaction(bootstrap: str, topic: str, values: list[str], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode())
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def read(bootstrap: str, topic: str, isolation: str, expected: int) -> list[str]:
    """Values from the topic's begin, until `expected` have come and then nothing for a second."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        record = consumer.poll(1.0)
        if record is None:
            if len(values) >= expected:
                break
            continue
        assert record.error() is None
        values.append((record.value() or b"").decode())
    consumer.close()
    return values


def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(kafka: str) -> None:
    topic = create_topic(kafka)
    write_transaction(kafka, topic, ["a", "b"], commit=True)
    write_transaction(kafka, topic, ["lost"], commit=False)
    write_transaction(kafka, topic, ["c"], commit=True)
    assert read(kafka, topic, "read_committed", 3) == ["a", "b", "c"]
    assert read(kafka, topic, "read_uncommitted", 4) == ["a", "b", "lost", "c"]


def test_the_broker_keeps_its_log_over_a_stop_and_over_a_crash(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(tmp_path / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    try:
        topic = create_topic(broker.bootstrap)
        write_transaction(broker.bootstrap, topic, ["before"], commit=True)
        broker.stop()
        assert not broker.ready()
        broker.start()
        write_transaction(broker.bootstrap, topic, ["between"], commit=True)
        # what could be read stays; of a transaction whose markers are not written yet a crash can forget
        # the end
        assert read(broker.bootstrap, topic, "read_committed", 2) == ["before", "between"]
        broker.kill()
        broker.start()
        assert read(broker.bootstrap, topic, "read_committed", 2) == ["before", "between"]
    finally:
        broker.kill()


async def test_each_test_has_an_empty_database(fresh_database: str) -> None:
    connection = await asyncpg.connect(fresh_database)
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    await connection.execute("CREATE TABLE stock (sku text PRIMARY KEY, quantity int)")
    await connection.execute("INSERT INTO stock VALUES ('85123A', 6)")
    assert await connection.fetchval("SELECT quantity FROM stock WHERE sku = '85123A'") == 6
    await connection.close()


async def test_postgres_keeps_its_rows_over_a_stop_and_over_a_crash(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", *free_ports(1))
    server.start()
    try:
        connection = await asyncpg.connect(server.url())
        await connection.execute("CREATE TABLE kept (number int)")
        await connection.execute("INSERT INTO kept VALUES (1)")
        await connection.close()
        server.stop()
        server.start()
        connection = await asyncpg.connect(server.url())
        await connection.execute("INSERT INTO kept VALUES (2)")
        server.kill()
        connection.terminate()
        server.start()
        connection = await asyncpg.connect(server.url())
        assert [row["number"] for row in await connection.fetch("SELECT number FROM kept ORDER BY 1")] == [
            1,
            2,
        ]
        await connection.close()
    finally:
        server.kill()


def test_postgres_starts_over_the_lock_file_of_a_server_that_found_the_disk_full(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", *free_ports(1))
    server.start()
    try:
        server.stop()
        (server.layout.cluster / "postmaster.pid").touch()
        server.start()
    finally:
        server.kill()


async def test_postgres_asks_for_the_password_which_only_its_owner_can_read(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", *free_ports(1))
    server.start()
    try:
        assert (tmp_path / "postgres" / "password").stat().st_mode & 0o777 == 0o600
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(server.url().replace(":", ":wrong", 2).replace(":wrong//", "://"))
    finally:
        server.kill()


async def test_the_server_is_of_the_version_that_the_documents_name(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    assert connection.get_server_version().major == int(MAJOR)
    await connection.close()
    assert f"PostgreSQL {MAJOR} " in (ROOT / "docs" / "reference" / "processes.md").read_text()
    assert (
        f"image: ${{DAYBOOK_POSTGRES_IMAGE:-postgres:{MAJOR}}}\n"
        in (ROOT / "infra" / "compose" / "shop.yml").read_text()
    )


def test_a_cluster_of_another_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "PG_VERSION").write_text("16\n")
    with pytest.raises(NotReady, match=r"^\S+cluster was made by PostgreSQL 16, .* `./daybook up` .*$"):
        EmbeddedPostgres(tmp_path, *free_ports(1)).start()


def test_a_long_log_is_put_aside_at_the_next_start(tmp_path: Path) -> None:
    log = tmp_path / "shell.log"
    log.write_bytes(b"old\n" * (KEPT_BYTES // 4 + 1))
    child = Child(Program("shell", ("sh", "-c", "echo new; exit 3")), log)
    with pytest.raises(NotReady, match="new"):
        child.wait_until(lambda: False, 30)
    assert log.read_text() == "new\n"
    assert (tmp_path / "shell.log.1").stat().st_size > KEPT_BYTES


def test_a_process_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    child = Child(Program("shell", ("sh", "-c", "echo no such luck; exit 3")), tmp_path / "shell.log")
    with pytest.raises(NotReady, match=r"(?s)shell ended with 3.*no such luck"):
        child.wait_until(lambda: False, 30)
