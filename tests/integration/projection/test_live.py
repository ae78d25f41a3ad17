"""The projection on the real log: what is committed arrives once, what is aborted never."""

from __future__ import annotations

from pathlib import Path

from tests.integration.projection.processes import applied, connected, differences, running, until
from tests.integration.projection.shop_log import LogWriter, fresh_topics, history


async def test_rows_are_the_fold_of_what_was_committed(
    kafka: str, fresh_database: str, tmp_path: Path
) -> None:
    fresh_topics(kafka)
    events, writer = history(1, 300), LogWriter(kafka)
    with running("project", kafka, fresh_database, tmp_path / "log", projection_group="live") as projection:
        await projection.ready()
        writer.write_all(events, 10, spoil=0.2)
        async with connected(fresh_database) as connection:
            await until(lambda: applied(connection, events), "not all events were applied")
            assert await differences(connection, events) == []
        assert projection.stop() == 0
