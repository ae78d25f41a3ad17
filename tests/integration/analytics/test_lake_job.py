"""The lake's job as a process, on the topics of the catalogue."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from analytics.lake.manifest import read_manifest
from analytics.replay import replay
from infra.log.topics import create_topics
from tests.integration.analytics.test_lake import assert_same, everything


def test_the_job_fills_the_lake_and_reports_how_far(
    spark: SparkSession, kafka: str, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    create_topics(kafka)
    everything(kafka, "order.events", range(1, 10))
    lake = tmp_path / "lake"

    def run(step: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "analytics.jobs.lake", step],
            env={**os.environ, **spark_environment, "DAYBOOK_KAFKA": kafka, "DAYBOOK_LAKE": str(lake)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    report = run("update")
    assert run("show") == report
    assert read_manifest(lake).ends == replay(spark, kafka).ends
    for number, end in replay(spark, kafka).ends["order.events"].items():
        assert f"complete to order.events/{number}/{end}" in report
    assert_same(spark, kafka, lake)
