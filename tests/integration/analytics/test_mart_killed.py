"""If a mart's job is killed while it writes, the previous output stays; the next run replaces it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.jobs.outputs import OutputReading, write
from analytics.marts.catalogue import MARTS, Column, Definition, Mart
from infra.base.waiting import wait_until
from infra.log.topics import create_topics

KEYS = Definition("which orders there are", "tests", ("order_id",), {"order_id": Column("the order")})
MART = Mart("orders", KEYS, MARTS["orders"].table)
SECONDS = 240


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.full
def test_a_killed_job_leaves_the_output_before_it(
    spark: SparkSession, kafka: str, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    create_topics(kafka)
    out, aside = tmp_path / "orders", tmp_path / ".orders.new"
    rows = spark.createDataFrame([("o-1",)], "order_id string")
    reading = OutputReading(ends={})
    write(rows, MART, reading, out)
    before = content(out)
    job = subprocess.Popen(
        [sys.executable, "-m", "analytics.jobs.marts", "orders", "--out", str(tmp_path)],
        env={**os.environ, **spark_environment, "DAYBOOK_KAFKA": kafka, "DAYBOOK_SPARK_MASTER": "local[2]"},
        start_new_session=True,
    )
    try:
        wait_until(lambda: aside.exists() or job.poll() is not None, "it writes", SECONDS, every=0.0005)
        assert job.poll() is None, "it ended before it wrote"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait(60)
    assert aside.exists(), "it was killed too late"
    assert content(out) == before
    write(rows, MART, reading, out)
    assert not aside.exists()
    assert content(out).keys() != before.keys(), "Spark names files anew: this is the next run's output"
