"""If a mart's job is killed while it writes, the previous output stays; the next run replaces it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from analytics.jobs.outputs import UNCHECKED, OutputReading, write
from analytics.marts.catalogue import MARTS, Column, Definition, Mart
from infra.base.waiting import wait_until
from infra.log.topics import create_topics

KEYS = Definition("which orders there are", "tests", ("order_id",), {"order_id": Column("the order")})
MART = Mart("orders", KEYS, MARTS["orders"].table)
SECONDS = 240


@pytest.mark.full
def test_a_killed_job_leaves_the_output_before_it(
    spark: SparkSession, kafka: str, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    create_topics(kafka)
    unchecked = tmp_path / UNCHECKED / "orders"
    rows = spark.createDataFrame([("o-1",)], "order_id string")
    reading = OutputReading(ends={})
    write(rows, MART, reading, tmp_path)
    assert not [*unchecked.rglob("*.parquet")]
    before = DeltaTable(tmp_path / "orders")
    job = subprocess.Popen(
        [sys.executable, "-m", "analytics.jobs.marts", "orders", "--out", str(tmp_path)],
        env={**os.environ, **spark_environment, "DAYBOOK_KAFKA": kafka, "DAYBOOK_SPARK_MASTER": "local[2]"},
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: [*unchecked.rglob("*.parquet")] or job.poll() is not None,
            "it writes",
            SECONDS,
            every=0.0005,
        )
        assert job.poll() is None, "it ended before it wrote"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait(60)
    assert [*unchecked.rglob("*.parquet")], "it was killed too late"
    assert DeltaTable(tmp_path / "orders").version() == before.version()
    write(rows, MART, reading, tmp_path)
    assert not [*unchecked.rglob("*.parquet")]
    again = DeltaTable(tmp_path / "orders")
    assert again.version() > before.version()
    assert again.to_pyarrow_table() == before.to_pyarrow_table(), "who reads the former rows may go on"
