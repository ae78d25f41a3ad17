"""The Spark session: local by default, sized for two cores and two gigabytes, in UTC."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from analytics.settings import AnalyticsSettings

ROOT = Path(__file__).parent.parent


class JarsMissing(Exception):
    """The folder named by DAYBOOK_SPARK_JARS has no jars."""


def open_session(name: str, settings: AnalyticsSettings) -> SparkSession:
    """A session that can read the log. Raises JarsMissing."""
    jars = sorted(str(jar) for jar in settings.spark_jars.glob("*.jar"))
    if not jars:
        raise JarsMissing(
            f"no jars in {settings.spark_jars}: set DAYBOOK_SPARK_JARS, or use `./daybook audit`"
        )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": settings.spark_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The Python workers run the contracts' upcasters and the domain's fold.
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.sql.session.timeZone": "UTC",
        # Other tools than Spark read instants exactly.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if settings.spark_scratch is not None:
        options["spark.local.dir"] = str(settings.spark_scratch)
    builder = SparkSession.builder.appName(name).master(settings.spark_master)
    for key, value in options.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
