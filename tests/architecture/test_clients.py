"""Kafka clients come from one module, so that the options of every connection are in one place."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "services/kernel/log/clients.py"
# A broker's own configuration names its controllers in `controller.quorum.bootstrap.servers`: no client.
ADDRESS = re.compile(r"(?<!quorum\.)bootstrap[._]servers|kafka://")
CLASS = re.compile(r"\w*(Producer|Consumer|AdminClient)")


def created(source: str) -> Iterator[int]:
    """The lines that create a Kafka client, or set its brokers, without the module of clients."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if CLASS.fullmatch(name):
                yield node.lineno
            case ast.keyword(arg="bootstrap_servers"):
                yield node.value.lineno
            case ast.Constant(value=str(text)) if ADDRESS.search(text):
                yield node.lineno


def test_every_client_comes_from_one_module() -> None:
    elsewhere = [
        f"{path.relative_to(ROOT)}:{line}"
        for tree in ("services", "analytics", "infra")
        for path in sorted((ROOT / tree).rglob("*.py"))
        if path != CLIENTS
        for line in created(path.read_text("utf-8"))
    ]
    assert elsewhere == []
    assert list(created(CLIENTS.read_text("utf-8")))


@pytest.mark.parametrize(
    "line",
    [
        "Producer({})",
        "confluent_kafka.Consumer(options)",
        "admin.AdminClient(options)",
        "AIOKafkaConsumer('topic')",
        "connect(bootstrap_servers=kafka)",
        "frame.option('kafka.bootstrap.servers', kafka)",
        "text = f'{name}.bootstrap.servers = {kafka}'",
        "App(broker=f'kafka://{kafka}')",
    ],
)
def test_a_planted_client_is_seen(line: str) -> None:
    assert list(created(f"x = 1\n{line}\n")) == [2]


def test_a_brokers_own_configuration_is_no_client() -> None:
    assert list(created("text = 'controller.quorum.bootstrap.servers={controller}'")) == []
