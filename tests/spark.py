"""One Spark session for all tests: starting it takes longer than most of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.session import open_session
from analytics.settings import AnalyticsSettings
from infra.stack.embedded.java import spark_environment as environment_of_jobs


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What a caller of the analytics jobs sets."""
    return environment_of_jobs()


@pytest.fixture(scope="session")
def spark(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    os.environ.update(spark_environment)
    settings = AnalyticsSettings(
        spark_jars=Path(spark_environment["DAYBOOK_SPARK_JARS"]),
        spark_master="local[2]",
        spark_scratch=tmp_path_factory.mktemp("spark"),
    )
    session = open_session("tests", settings)
    # Inputs are a handful of rows: to plan again after each stage costs a sixth of a test, and gains nothing.
    # The jobs that are child processes, the notebooks and the benchmark run as the shop does.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # For so few rows, to compile a plan to Java takes a quarter of a test. Spark then interprets it.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()
