"""The Spark session: local by default, sized for two cores and two gigabytes, in UTC.

`DAYBOOK_SPARK_MASTER=spark://…` runs the same job on a cluster, with our code in an archive. Under `spark-submit`, its
command line says where the job runs and how big it is."""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from analytics.errors import AnalyticsError
from analytics.offsets import responds
from analytics.settings import AnalyticsSettings

ROOT = Path(__file__).parent.parent
LOOPBACK = "127.0.0.1"
SHIPPED = "daybook"  # the archive's name in an executor's folder
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit alone

# What changes results or their form is the same wherever the job runs.
EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    # Other tools than Spark read instants exactly.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",  # half the size of snappy, as fast
    # Many small parts to begin with, so that a large input does not need much memory; Spark merges what stays small.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
    # Without that (streams, whose state is bound to this number): few.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    # What is kept on disk is built in memory batch by batch: of 10,000 records each, most of the time is garbage.
    "spark.sql.inMemoryColumnarStorage.batchSize": "1000",
    # Ids are ten times larger in memory than in files, and more: a join must not hold millions of them in each process.
    "spark.sql.sources.fileCompressionFactor": "10",
    # Java code for a plan is compiled once and kept for the next time: the marts need more than Spark's 100 classes.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.ui.showConsoleProgress": "false",
    # Spark renders a plan whenever it changes, for its page: those of the marts have thousands of lines.
    "spark.sql.maxPlanStringLength": "10000",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A lake's list of files is short; 50 tasks to read it would be most of the work.
    "spark.databricks.delta.snapshotPartitions": "2",
}


class NoSession(AnalyticsError):
    """The folder named by DAYBOOK_SPARK_JARS has no jars, or no master of the cluster responds."""


def open_session(name: str, settings: AnalyticsSettings) -> SparkSession:
    """A session that can read the log. Raises NoSession."""
    options = {**EVERYWHERE, **({} if SUBMITTED in os.environ else _place(settings))}
    session = SparkSession.builder.appName(name).config(map=options).getOrCreate()
    # An error ends the job, which says what happened; Spark would print the same Java stack several times.
    session.sparkContext.setLogLevel("OFF")
    return session


def _place(settings: AnalyticsSettings) -> dict[str, str]:
    jars = sorted(str(jar) for jar in settings.spark_jars.glob("*.jar"))
    if not jars:
        raise NoSession(f"no jars in {settings.spark_jars}: set DAYBOOK_SPARK_JARS, or use `./daybook audit`")
    options = {
        "spark.master": settings.spark_master,
        "spark.jars": ",".join(jars),
        "spark.driver.memory": settings.spark_memory,
        "spark.ui.enabled": "false",
    }
    if settings.spark_scratch is not None:
        options["spark.local.dir"] = str(settings.spark_scratch)
    return options | (_local() if settings.spark_master.startswith("local") else _cluster(settings))


def _local() -> dict[str, str]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The Python workers run the contracts' upcasters and the domain's fold.
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }


def _cluster(settings: AnalyticsSettings) -> dict[str, str]:
    """Code and jars travel with the job; Python and its packages must be there, at PYSPARK_PYTHON."""
    master = settings.spark_master
    # At once: Spark would ask for a minute, and then say that it was stopped.
    if master.startswith("spark://") and not responds(master.removeprefix("spark://")):
        raise NoSession(
            f"no Spark cluster responds at DAYBOOK_SPARK_MASTER, {master}: `./daybook spark status`"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own, cores = settings.spark_driver_host, settings.spark_executor_cores
    return {
        **({"spark.executor.cores": str(cores)} if cores else {}),
        "spark.driver.host": own,
        "spark.driver.bindAddress": LOOPBACK if own == LOOPBACK else "0.0.0.0",
        "spark.executor.memory": settings.spark_executor_memory,
        "spark.archives": f"{code_archive(ROOT)}#{SHIPPED}",
        "spark.executorEnv.PYTHONPATH": SHIPPED,
    }


PACKAGES = ("analytics", "contracts", "services")
KINDS = frozenset({".py", ".avsc", ".json", ".yaml"})


def code_archive(root: Path) -> Path:
    """A zip of what the Python workers import, and the schemas; removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="daybook-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "daybook.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.suffix in KINDS:
                    out.write(file, file.relative_to(root))
    return archive
