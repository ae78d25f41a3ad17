"""A projection with a static name in its group: it returns at once after a kill; of two, one ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.integration.projection.processes import Process, applied, connected, differences, running, until
from tests.integration.projection.shop_log import LogWriter, fresh_topics, history

pytestmark = pytest.mark.long

# Long enough to notice a process that waits for its predecessor's session.
SESSION_SECONDS, BACK_SECONDS = 60, 50.0
# Faust lets a group wait 60 s for a member that was frozen in a rebalance and whose session has not ended.
SUCCESSOR_SECONDS = 150.0
KILLS = 3


class Named:
    """Starts projections with the same name."""

    def __init__(self, kafka: str, database_url: str, folder: Path) -> None:
        self.kafka, self.database_url, self.folder = kafka, database_url, folder
        self.session_seconds = SESSION_SECONDS
        self.writer = LogWriter(kafka)

    def running(self, log: str) -> AbstractContextManager[Process]:
        return running(
            "project", self.kafka, self.database_url, self.folder / log,
            projection_group=f"named-{self.folder.name}", projection_instance="0",
            session_seconds=str(self.session_seconds),
        )  # fmt: skip


@pytest.fixture
async def named(kafka: str, fresh_database: str, tmp_path: Path) -> AsyncIterator[Named]:
    fresh_topics(kafka)
    yield Named(kafka, fresh_database, tmp_path)


async def test_a_killed_projection_does_not_wait_for_its_own_session(named: Named) -> None:
    events = history(11, 300)
    half = len(events) // 2
    with named.running("projection.log") as projection:
        await projection.ready()
        await asyncio.to_thread(named.writer.write_all, events[:half], 20, spoil=0.2)
        for _ in range(KILLS):
            projection.kill()
            projection.start()
            async with asyncio.timeout(BACK_SECONDS):
                await projection.ready()
        await asyncio.to_thread(named.writer.write_all, events[half:], 20, spoil=0.2)
        await all_applied(named, events)


async def test_of_two_with_one_name_one_ends_and_no_row_is_wrong(named: Named) -> None:
    events = history(12, 300)
    half = len(events) // 2
    # if the older one is frozen in a rebalance, its successor waits until its session expires; if it is frozen
    # in a transaction, until PostgreSQL ends that
    named.session_seconds = 15
    with named.running("older.log") as older:
        await older.ready()
        await asyncio.to_thread(named.writer.write_all, events[:half], 20, spoil=0.2)
        older.signal(signal.SIGSTOP)
        with named.running("newer.log") as newer:
            await newer.ready(SUCCESSOR_SECONDS)
            older.signal(signal.SIGCONT)
            await asyncio.to_thread(named.writer.write_all, events[half:], 20, spoil=0.2)
            # the one whose transaction comes second finds that it does not own the position
            await until(lambda: ended(older, newer), "both go on", BACK_SECONDS)
            older.kill()
            # both may end: the older one's last transaction may come first, before it is fenced
            await all_applied(named, events, newer)


async def ended(*processes: Process) -> bool:
    return any(process.child.poll() is not None for process in processes)


async def all_applied(named: Named, events: list, restarted: Process | None = None) -> None:  # type: ignore[type-arg]
    async with connected(named.database_url) as connection:

        async def done() -> bool:
            if restarted is not None:
                restarted.restart_if_ended()
            return bool(await applied(connection, events))

        await until(done, "not all events were applied")
        assert await differences(connection, events) == []
