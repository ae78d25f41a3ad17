"""What the lake had recorded by a moment never changes, whatever is open then and whatever comes late."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analytics.lake.reader import open_lake
from analytics.lake.tables import compact
from analytics.lake.writer import update
from analytics.replay import replay
from tests.integration.analytics.log_writer import Topics, Writer, write, writer
from tests.integration.analytics.shop import DAY
from tests.integration.analytics.test_lake import no_progress, placed

UPDATES, STEPS = 4, 6


class Writers:
    """Transactions that begin, commit and abort in an order that `draw` decides; each writes orders of any day."""

    def __init__(self, new: Callable[[], Writer], topic: str, draw: random.Random) -> None:
        self._new, self._topic, self._draw = new, topic, draw
        self._open: list[Writer] = []
        self._orders = 0

    def step(self) -> None:
        act = self._draw.choice((self.begin, self.begin, self.commit, self.abort))
        act()

    def begin(self) -> None:
        producer = self._new()
        producer.begin_transaction()
        for _ in range(self._draw.randrange(1, 4)):
            self._orders += 1
            order = placed(self._orders)
            late = replace(order, occurred_at=order.occurred_at - self._draw.randrange(400) * DAY)
            write(producer, self._topic, late, 1)
        producer.flush()
        self._open.append(producer)

    def commit(self) -> None:
        if self._open:
            self._open.pop(self._draw.randrange(len(self._open))).commit_transaction(30)

    def abort(self) -> None:
        if self._open:
            self._open.pop(self._draw.randrange(len(self._open))).abort_transaction(30)

    def commit_oldest(self) -> None:
        """What came after the oldest open transaction is not stable: a lake beside one that stays open never grows."""
        if self._open:
            self._open.pop(0).commit_transaction(30)

    def finish(self) -> None:
        while self._open:
            self.commit()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_recorded_time_never_changes(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path, seed: int
) -> None:
    def events(by: datetime) -> set[Any]:
        rows = open_lake(spark, lake, by).events.select("topic", "partition", "offset", "id").collect()
        return {tuple(row) for row in rows}

    recorded: list[tuple[Any, set[Any]]] = []
    with ExitStack() as running:
        writers = Writers(lambda: running.enter_context(writer(kafka)), topics.orders, random.Random(seed))
        running.callback(writers.finish)
        for _ in range(UPDATES):
            for _ in range(STEPS):
                writers.step()
            writers.commit_oldest()
            commit = update(spark, kafka, lake, no_progress, [topics.orders])
            recorded.append((commit, events(commit.time)))
        writers.finish()
    update(spark, kafka, lake, no_progress, [topics.orders])
    compact(lake)
    for commit, then in recorded:
        assert events(commit.time) == then
        log = replay(spark, kafka, ends=commit.ends).events.select("topic", "partition", "offset", "id")
        assert {tuple(row) for row in log.collect()} == then, "it was all that was committed then"
    sizes = [len(then) for _, then in recorded]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1], "the lake grows"
