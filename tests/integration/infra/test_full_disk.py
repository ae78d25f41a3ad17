"""A broker is not started on a full disk: its recovery there empties logs."""

import subprocess
from pathlib import Path

import pytest

from infra.base.errors import NotReady
from infra.base.settings import ROOT
from infra.log.topics import create_topics
from infra.stack.embedded.kafka import lone_broker
from tests.integration.infra.test_stack import write_transaction
from tests.integration.patterns.seen import records
from tests.ports import free_ports
from tests.servers import NodeServer
from tests.small_disk import small_disk

TOPIC = "order.events"
WITH_ROOM = ROOT / "infra" / "stack" / "compose" / "with-room"


def test_a_broker_waits_for_room_and_then_has_its_log(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 200) as disk:
        port, controller_port = free_ports(2)
        broker = NodeServer(lone_broker(disk.seen / "broker", port, controller_port, heap_megabytes=256))
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
            assert [record.value() for record in records(broker.bootstrap, TOPIC)] == [b"before"]
        finally:
            broker.kill()


def test_a_broker_in_a_container_waits_for_room_too(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 200) as disk:
        command = [*disk.enter, str(WITH_ROOM), str(disk.folder), "echo", "started"]
        disk.leave(90)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
            assert waiting.stdout is not None
            assert "the start waits for room" in waiting.stdout.readline()
            disk.clear()
            assert "started" in waiting.stdout.read()
        disk.leave(90)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stopped:
            assert stopped.stdout is not None and stopped.stdout.readline()
            stopped.terminate()
            assert stopped.wait(30) == 143
