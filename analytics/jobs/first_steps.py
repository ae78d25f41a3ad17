"""`spark-submit analytics/jobs/first_steps.py`: what nearly every job does, with a few rows and no log.

At its end it waits for Spark's JVM, which may store the classes that it has loaded (`make spark` makes it do so)."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from analytics.jobs import arguments
from analytics.session import open_session

JVM_SECONDS = 300.0


def run() -> None:
    """Sum, join, sort, write and read rows, and pass them to a Python worker."""
    settings = arguments.settings_or_exit()
    with arguments.exit_on_failure(), TemporaryDirectory(prefix="daybook-spark-") as folder:
        session = open_session("first steps", settings)
        jvm = session.sparkContext._gateway
        _work(session, Path(folder))
        session.stop()
        jvm.shutdown()
        jvm.proc.stdin.close()
        jvm.proc.wait(JVM_SECONDS)


def _work(session: SparkSession, folder: Path) -> None:
    rows = session.range(1_000).select(
        "id", (F.col("id") % 10).alias("key"), F.current_timestamp().alias("at")
    )
    sums = rows.groupBy("key").agg(F.sum("id").alias("sum"), F.max("at").alias("last"))
    sums.write.format("delta").save(str(folder / "delta"))
    written = session.read.format("delta").load(str(folder / "delta"))
    joined = rows.join(written, "key").mapInArrow(
        lambda batches: batches, "id long, key long, at timestamp, sum long, last timestamp"
    )
    joined.sort("id").write.parquet(str(folder / "parquet"))
    session.read.parquet(str(folder / "parquet")).toArrow()


if __name__ == "__main__":
    arguments.run_job(run)
