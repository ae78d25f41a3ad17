"""A lake whose writer is killed shows what it showed before; the next update completes it, each record once."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analytics.lake.tables import RAW, copy_of, lake_report, last_batch, read_commits
from analytics.lake.views import connect
from analytics.lake.writer import update
from analytics.replay import replay
from tests.integration.analytics.log_writer import create_topics
from tests.integration.analytics.test_lake import assert_same, everything, no_progress


def killed(point: str, topic: str, lake: Path, environment: Mapping[str, str]) -> None:
    """Runs an update until it is killed at `point`."""
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.analytics.killed_jobs", point, topic, str(lake)],
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        assert job.wait(240) == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def shown(lake: Path) -> tuple[list[Any], list[str]]:
    """How many records a lake has for SQL, and in its report, without the size of its files."""
    with connect(lake, {}) as connection:
        return connection.sql("SELECT count(*) FROM events_raw").fetchall(), lake_report(lake).splitlines()[
            1:
        ]


@pytest.mark.full
@pytest.mark.parametrize("point", ["writing", "appended", "half", "copied"])
def test_a_killed_update_loses_and_doubles_nothing(
    spark: SparkSession, kafka: str, tmp_path: Path, spark_environment: Mapping[str, str], point: str
) -> None:
    topic, lake = create_topics(kafka).orders, tmp_path / "lake"
    everything(kafka, topic, range(1, 20))
    before = update(spark, kafka, lake, no_progress, [topic])
    earlier = shown(lake)
    everything(kafka, topic, range(20, 60))
    killed(point, topic, lake, {**spark_environment, "DAYBOOK_KAFKA": kafka})
    batches = last_batch(copy_of(lake, before.log), RAW) - before.batch
    assert batches > 1 if point == "copied" else batches == (0 if point == "writing" else 1)
    assert read_commits(lake) == [before]
    assert_same(spark, kafka, lake)
    assert shown(lake) == earlier
    whole = update(spark, kafka, lake, no_progress, [topic])
    assert whole.ends == replay(spark, kafka, [topic]).ends
    assert_same(spark, kafka, lake)
