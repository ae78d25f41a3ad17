"""A broker is not started on a full disk: its recovery there empties logs."""

from pathlib import Path

import pytest

from infra.embedded.broker import EmbeddedBroker
from infra.embedded.errors import NotReady
from infra.embedded.ports import free_ports
from infra.topics import create_topics
from tests.integration.infra.test_stack import read, write_transaction
from tests.small_disk import small_disk

TOPIC = "order.events"


def test_a_broker_waits_for_room_and_then_has_its_log(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 200) as disk:
        port, controller_port = free_ports(2)
        broker = EmbeddedBroker(disk.seen / "broker", port, controller_port, heap_megabytes=256)
        broker.start()
        try:
            create_topics(broker.bootstrap)
            write_transaction(broker.bootstrap, TOPIC, ["before"], commit=True)
            disk.fill()
            broker.kill()
            with pytest.raises(NotReady, match=r"\(0 bytes\) free: a start needs 100 MB"):
                broker.start()
            disk.clear()
            broker.start()
            assert read(broker.bootstrap, TOPIC, "read_committed", 1) == ["before"]
        finally:
            broker.kill()
