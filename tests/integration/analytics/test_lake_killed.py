"""A lake whose writer is killed is complete up to its manifest; the next run completes it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.lake.manifest import REBUILDING, read_manifest
from analytics.lake.writer import compact, rebuild, update
from analytics.replay import replay
from tests.integration.analytics.log_writer import create_topics
from tests.integration.analytics.test_lake import assert_same, everything, no_progress

EVENTS = range(1, 60)


def killed(step: str, point: str, topic: str, lake: Path, environment: Mapping[str, str]) -> None:
    """Runs the job until it is killed at `point`."""
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.analytics.killed_jobs", step, point, topic, str(lake)],
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        assert job.wait(120) == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


@pytest.mark.parametrize("point", ["writing", "written", "switched"])
def test_a_killed_update_loses_and_doubles_nothing(
    spark: SparkSession, kafka: str, tmp_path: Path, spark_environment: Mapping[str, str], point: str
) -> None:
    topic, lake = create_topics(kafka).orders, tmp_path / "lake"
    everything(kafka, topic, EVENTS)
    killed("update", point, topic, lake, {**spark_environment, "DAYBOOK_KAFKA": kafka})
    left = read_manifest(lake)
    assert len(left.parts) == (2 if point == "switched" else 1)
    assert_same(spark, kafka, lake)
    whole = update(spark, kafka, lake, no_progress, [topic])
    assert whole.parts[: len(left.parts)] == left.parts
    assert whole.ends == replay(spark, kafka, [topic]).ends
    assert_same(spark, kafka, lake)
    assert len(list(lake.glob("parts/*"))) == len(whole.parts)
    assert not list(lake.glob("aside/*"))


def test_a_killed_rebuild_leaves_the_lake_before_it(
    spark: SparkSession, kafka: str, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    topic, lake = create_topics(kafka).orders, tmp_path / "lake"
    everything(kafka, topic, EVENTS)
    before = update(spark, kafka, lake, no_progress, [topic])
    killed("rebuild", "writing", topic, lake, {**spark_environment, "DAYBOOK_KAFKA": kafka})
    assert (lake / REBUILDING).exists()
    assert list(lake.glob("aside/*")), "it was killed too late"
    assert read_manifest(lake) == before
    assert_same(spark, kafka, lake)
    again = rebuild(spark, kafka, lake, no_progress, [topic])
    assert (again.ends, again.schemas) == (before.ends, before.schemas)
    assert {part.name for part in again.parts}.isdisjoint(part.name for part in before.parts)
    assert_same(spark, kafka, lake)
    assert not (lake / REBUILDING).exists()
    assert not list(lake.glob("aside/*"))
    assert len(list(lake.glob("parts/*"))) == len(again.parts) + len(before.parts), "readers may use the old"


def test_a_killed_compaction_changes_nothing(
    spark: SparkSession, kafka: str, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    topic, lake = create_topics(kafka).orders, tmp_path / "lake"
    everything(kafka, topic, EVENTS)
    before = update(spark, kafka, lake, no_progress, [topic], events_per_batch=80)
    killed("compact", "written", topic, lake, spark_environment)
    assert read_manifest(lake) == before
    assert_same(spark, kafka, lake)
    assert len(compact(spark, lake).parts) == 1
    assert_same(spark, kafka, lake)
