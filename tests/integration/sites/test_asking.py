"""A site that is asked again and again is still heard when its broker was rebuilt from nothing."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from contracts.kernel.records import CommandInputs, SiteRole
from infra.base.background import Background
from infra.dr.rebuild import prepare_empty
from infra.log.control import READ_SECONDS, read_site, write_role
from infra.log.topics import CONTROL, catalogue, create_topics
from infra.stack.embedded.kafka import lone_broker
from services.kernel.log.control import Control, ControlSource
from services.kernel.log.reader import NotKnown
from tests.integration.sites.rig import eventually
from tests.ports import free_ports
from tests.servers import NodeServer

HEARD_SECONDS = 30.0


def test_a_rebuilt_site_is_heard(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    ports = port, controller_port
    broker = begin(tmp_path / "broker", ports, SiteRole("home", "active", 1))
    try:
        with Asking(broker.bootstrap) as asking:
            eventually(lambda: asking.epoch == 1, HEARD_SECONDS)
            # each start raises the epoch of the partition's leader, which begins again with a new log
            for _ in range(2):
                broker.stop()
                broker.start()
            write_role(broker.bootstrap, SiteRole("home", "active", 2))
            eventually(lambda: asking.epoch == 2, HEARD_SECONDS)
            broker.stop()
            shutil.rmtree(tmp_path / "broker")
            broker = begin(tmp_path / "broker", ports, SiteRole("home", "passive", 7))
            eventually(lambda: asking.epoch == 7, HEARD_SECONDS)
    finally:
        broker.kill()


def test_a_rebuilt_site_has_the_phase_of_the_active_one(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    broker = NodeServer(lone_broker(tmp_path / "broker", port, controller_port, heap_megabytes=256))
    broker.start()
    try:
        active = Control(SiteRole("home", "active", 3), inputs=CommandInputs("inbox", 1))
        prepare_empty(broker.bootstrap, "away", active)
        control = read_site(broker.bootstrap, HEARD_SECONDS)
        assert (control.role, control.phase) == (SiteRole("away", "passive", 3), "inbox")
        # Epoch 4 was that of a switch that was begun, whose target was lost.
        write_role(broker.bootstrap, SiteRole("away", "active", 5))
        assert read_site(broker.bootstrap, HEARD_SECONDS).role == SiteRole("away", "active", 5)
    finally:
        broker.kill()


class Asking(Background):
    """Asks ten times a second, as a guard does: it also sees the broker's half-started states."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("asking")
        self._source = ControlSource(bootstrap)
        self.epoch = 0

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._source.close()

    def _work(self) -> None:
        while not self._stopping.wait(0.1):
            with suppress(NotKnown):
                self.epoch = self._source.read(READ_SECONDS).role.epoch


def begin(folder: Path, ports: tuple[int, int], role: SiteRole) -> NodeServer:
    broker = NodeServer(lone_broker(folder, *ports, heap_megabytes=256))
    broker.start()
    create_topics(broker.bootstrap, {CONTROL: catalogue()[CONTROL]})
    write_role(broker.bootstrap, role)
    return broker
