"""`daybook parked` on commands that a real worker could not execute."""

import asyncio
import getpass
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import msgspec
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from contracts.inventory.commands import ReceiveStock
from contracts.kernel.records import OperatorActed, SiteRole
from infra.base.errors import NotDone
from infra.cli.acts import app as journal
from infra.cli.parked import app
from infra.lab.checker.evidence import read_evidence
from infra.log import parked
from infra.log.parked import Parked, parked_commands
from infra.log.topics import create_topics
from services.kernel.log.control import JOURNAL, Control
from services.kernel.log.reader import read_to_end
from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import (
    UNKNOWN,
    AuthContext,
    Metadata,
    now_micros,
    partition_of,
    uuid7,
    write_headers,
)
from tests.integration.api.processes import eventually, process
from tests.ports import free_ports
from tests.postgres_server import create_tables_of_shop

TOPIC = "inventory.commands"


@pytest.fixture(scope="module")
def inventory(kafka: str) -> Iterator[str]:
    create_topics(kafka)
    (port,) = free_ports(1)
    with process("inventory", "worker", kafka, port):
        yield kafka


def poison(kafka: str, auth: AuthContext = UNKNOWN) -> str:
    """A good command on the wrong partition: the worker parks it, murmur2 will mend it. Its SKU."""
    sku = uuid7()
    command = ReceiveStock(sku, 5, "DN-1", 1)
    metadata = Metadata(uuid7(), command.TYPE, sku, "test", 1, "talk", "cause", 1, auth=auth)
    producer = Producer({"bootstrap.servers": kafka})
    wrong = 1 - partition_of(sku, 2)
    producer.produce(TOPIC, encode(TOPIC, command), sku, partition=wrong, headers=write_headers(metadata))
    producer.flush()
    return sku


def parked_of(kafka: str, sku: str) -> list[Parked]:
    return [parked for parked in parked_commands(kafka) if parked.header("ce_subject") == sku]


def daybook(kafka: str, *arguments: str) -> str:
    """What it says on both streams."""
    done = CliRunner().invoke(app, [*arguments, "--kafka", kafka], env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.output


def test_a_parked_command_is_shown_and_retried(inventory: str, fresh_database: str) -> None:
    create_tables_of_shop(fresh_database)
    sku = poison(inventory)
    (parked,) = eventually(lambda: parked_of(inventory, sku), "the command is not parked")
    assert parked.position.startswith(f"{TOPIC}/")
    assert sku in daybook(inventory, "list", "--database-url", fresh_database)
    shown = daybook(inventory, "show", parked.position)
    assert "murmur2" in shown
    assert "quantity=5" in shown
    daybook(inventory, "retry", parked.position, "--why", "the producer is mended")
    assert parked_of(inventory, sku) == []
    again = CliRunner().invoke(app, ["retry", parked.position, "--kafka", inventory])
    assert again.exit_code == 1
    acts = [act[1:] for act in acts_on(inventory, parked.position)]
    assert acts == [("parked retry", "the producer is mended", "done"), ("parked retry", "", "failed")]


def test_a_command_that_an_operator_sends_again_keeps_its_principal(
    inventory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_OPERATOR", "0d5e-operator")
    sku = poison(inventory, AuthContext("user", "w-5f1e8a52"))
    (parked,) = eventually(lambda: parked_of(inventory, sku), "the command is not parked")
    daybook(inventory, "retry", parked.position)
    (event,) = eventually(
        lambda: [event for event in read_evidence(inventory, ["inventory.events"]) if event.key == sku],
        "the command is not executed",
    )
    assert event.metadata.auth == AuthContext("user", "w-5f1e8a52", "0d5e-operator")
    assert acts_on(inventory, parked.position) == [("0d5e-operator", "parked retry", "", "done")]
    listed = CliRunner().invoke(journal, ["--kafka", inventory], env={"COLUMNS": "400"})
    assert listed.exit_code == 0, listed.output
    (line,) = [line for line in listed.output.splitlines() if parked.position in line]
    assert "0d5e-operator" in line
    assert "parked retry" in line


def test_an_operator_is_a_random_id_that_stays(
    inventory: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DAYBOOK_OPERATOR", raising=False)
    monkeypatch.setenv("DAYBOOK_HOME", str(tmp_path))
    for _ in range(2):
        assert CliRunner().invoke(app, ["skip", "t/0/1", "--kafka", inventory]).exit_code == 1
    (first, *_), (second, *_) = acts_on(inventory, "t/0/1")
    assert first == second
    assert len(first) == 32
    assert getpass.getuser() not in (first, *(path.name for path in tmp_path.rglob("*")))


def acts_on(kafka: str, subject: str) -> list[tuple[str, str, str, str]]:
    """Who did what to it, why, and how it ended."""
    return [
        (act.who, act.act, act.why, act.outcome)
        for record in read_to_end(kafka, JOURNAL, {0: 0})
        if isinstance(act := decode(record.value()), OperatorActed) and act.subject == subject
    ]


def test_a_parked_command_can_be_given_up(inventory: str) -> None:
    sku = poison(inventory)
    (parked,) = eventually(lambda: parked_of(inventory, sku), "the command is not parked")
    daybook(inventory, "skip", parked.position)
    assert parked_of(inventory, sku) == []


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        (
            SiteRole("home", "active", 3),
            "was sent in epoch 1, the site is in epoch 3: its client must repeat it",
        ),
        (SiteRole("away", "passive", 1), "away is not active: it does not execute commands"),
    ],
)
def test_a_command_that_no_worker_would_execute_stays_parked(
    inventory: str, monkeypatch: pytest.MonkeyPatch, role: SiteRole, reason: str
) -> None:
    sku = poison(inventory)
    (command,) = eventually(lambda: parked_of(inventory, sku), "the command is not parked")
    monkeypatch.setattr(parked, "read_control", lambda _: Control(role))
    with pytest.raises(NotDone, match=reason):
        parked.retry(inventory, command)
    assert parked_of(inventory, sku) == [command]


async def _park(url: str) -> None:
    create_tables_of_shop(url)
    connection = await asyncpg.connect(url)
    about = Metadata("e", "daybook.order.OrderPlaced", "536365", "test", now_micros(), "c", "c", 1, version=1)
    await connection.execute(
        """INSERT INTO parked
            (read_model, key, version, topic, partition, "offset", headers, record_key, value, reason, kind)
        VALUES ('orders', '536365', 1, 'order.events', 0, 7, $1, '536365', 'junk', 'not framed', 'failed')""",
        msgspec.msgpack.encode(write_headers(about)),
    )
    await connection.close()


def test_a_parked_key_is_listed_retried_and_given_up(inventory: str, fresh_database: str) -> None:
    asyncio.run(_park(fresh_database))
    database = ("--database-url", fresh_database)
    assert "orders:536365" in daybook(inventory, "list", *database)
    assert "order.events/0/7 version 1: not framed" in daybook(inventory, "show", "orders:536365", *database)
    again = CliRunner().invoke(app, ["retry", "orders:536365", "--kafka", inventory, *database])
    assert (again.exit_code, "1 left" in again.output) == (1, True)
    assert "0 applied, 0 left" in daybook(inventory, "skip", "orders:536365", *database)
    assert "536365" not in daybook(inventory, "list", *database)
    assert CliRunner().invoke(app, ["show", "orders:536365", *database]).exit_code == 1
