"""The write block for a full disk on a real `site.control`: written, lifted, found by the next watcher."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.log.control import lift_hold, write_hold
from infra.log.topics import create_topics, ensure_site
from infra.stack.embedded.kafka import lone_broker
from infra.stack.storage import StorageWatch
from services.kernel.log.control import read_control
from tests.ports import free_ports
from tests.servers import NodeServer

SECONDS = 60.0
ENDLESS = 1 << 60  # a reserve that no disk has


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NodeServer]:
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(tmp_path / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    create_topics(broker.bootstrap)
    ensure_site(broker.bootstrap)
    yield broker
    broker.kill()


def test_the_block_follows_the_disk_over_restarts_failovers_and_a_broker_that_is_away(
    broker: NodeServer, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    StorageWatch([tmp_path], ENDLESS).look(bootstrap)
    block = read_control(bootstrap).storage
    assert block is not None and block.folder == str(tmp_path) and block.free_bytes > 0

    write_hold(bootstrap, "takeover", 1)
    lift_hold(bootstrap)
    assert read_control(bootstrap).held == "storage"

    roomy = StorageWatch([tmp_path], 1)
    broker.stop()
    roomy.look(bootstrap)
    broker.start()
    deadline = time.monotonic() + SECONDS
    while not read_control(bootstrap).taking:
        assert time.monotonic() < deadline, "the block stays"
        roomy.look(bootstrap)

    # a watcher that is not told of a broker only measures: the Spark cluster's
    StorageWatch([tmp_path], ENDLESS).look()
    assert read_control(bootstrap).taking
