"""What the tests of the APIs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.stack.embedded.kafka import lone_broker
from tests.ports import free_ports
from tests.servers import NodeServer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NodeServer]:
    """A broker of the test's own, which it may stop or kill."""
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(tmp_path / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    yield broker
    broker.kill()
