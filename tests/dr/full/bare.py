"""Two brokers and a mirror, without the shop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.base.waiting import TooLate, wait_until
from infra.log.topics import create_topics, mirrored_topics
from infra.stack.embedded.child import Child
from infra.stack.embedded.kafka import lone_broker, prepare_mirror
from infra.stack.mirror_settings import MirrorPlace
from services.kernel.log.reader import high_watermarks, partitions_of
from tests.ports import free_ports
from tests.servers import NodeServer

# a successor waits for the group's session (10 s) and the open transaction (10 s) of one that was killed
PATIENCE = 60.0
ATTEMPTS = 3
QUIET_SECONDS = 5.0


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    port, controller_port = free_ports(2)
    running = NodeServer(lone_broker(folder, port, controller_port, heap_megabytes=256))
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
    return sum(high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic)).values())


class BareMirror:
    """A mirror that is started anew where it copies nothing: its only task can die for good in a process
    that lives on (InvalidTxnState at a commit), and here no guard tells a supervisor."""

    def __init__(self, layout: MirrorPlace) -> None:
        self._place, self._child = layout, self._started(layout)

    def copies_beyond(self, topic: str, offset: int) -> None:
        """Return once the target's topic has more records than `offset`."""
        for _ in range(ATTEMPTS):
            try:
                wait_until(
                    lambda: ends(self._place.target_bootstrap, topic) > offset,
                    f"the mirror copies {topic} beyond {offset}",
                    PATIENCE,
                )
                return
            except TooLate:
                self.kill()
                self._child = self._started(self._place)
        raise AssertionError(f"the mirror copies nothing of {topic} beyond {offset}")

    def kill(self) -> None:
        self._child.kill()

    @staticmethod
    def _started(layout: MirrorPlace) -> Child:
        return Child(prepare_mirror(layout), layout.folder / "mirror.log")


@contextmanager
def mirror(layout: MirrorPlace) -> Iterator[BareMirror]:
    """One that runs until the end of the block, or until it is killed."""
    running = BareMirror(layout)
    try:
        yield running
    finally:
        running.kill()


def await_still(bootstrap: str, topic: str) -> None:
    """Wait until nothing has come for some seconds."""
    before, since = -1, time.monotonic()

    def still(now: int) -> bool:
        nonlocal before, since
        if now != before:
            before, since = now, time.monotonic()
        return time.monotonic() > since + QUIET_SECONDS

    wait_until(lambda: ends(bootstrap, topic), f"{topic} is quiet", PATIENCE, enough=still, every=0.2)
