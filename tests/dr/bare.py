"""Two brokers and a mirror, without the shop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.embedded.broker import EmbeddedBroker
from infra.embedded.mirror import MirrorPlace
from infra.embedded.ports import free_ports
from infra.topics import create_topics, mirrored_topics
from services.kernel.log_reader import end_offsets, partitions_of

PATIENCE = 180.0
QUIET_SECONDS = 5.0


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    port, controller_port = free_ports(2)
    running = EmbeddedBroker(folder, port, controller_port, heap_megabytes=256)
    running.start()
    try:
        create_topics(running.bootstrap)
        yield running.bootstrap
    finally:
        running.kill()


def mirror_place(folder: Path, source: str, target: str, exactly_once: bool = True) -> MirrorPlace:
    (port,) = free_ports(1)
    return MirrorPlace(folder, port, "home", "away", source, target, mirrored_topics(), exactly_once)


def ends(bootstrap: str, topic: str) -> int:
    """The sum of the partitions' ends."""
    return sum(end_offsets(bootstrap, topic, partitions_of(bootstrap, topic)).values())


def copied_beyond(bootstrap: str, topic: str, offset: int) -> None:
    until = time.monotonic() + PATIENCE
    while ends(bootstrap, topic) <= offset:
        assert time.monotonic() < until, "the mirror copies nothing"
        time.sleep(0.05)


def quiet(bootstrap: str, topic: str) -> None:
    """Wait until nothing has come for some seconds."""
    before, since = -1, time.monotonic()
    while time.monotonic() < since + QUIET_SECONDS:
        if (now := ends(bootstrap, topic)) != before:
            before, since = now, time.monotonic()
        time.sleep(0.2)
