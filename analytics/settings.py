"""What analytics needs to know, from the environment."""

import os
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

# A folder of files, each named as a variable and read where that is not set: how containers get secrets.
SECRETS = os.environ.get("DAYBOOK_SECRETS") or None


def located(lake: str) -> str:
    """A folder's absolute path; a URI as it is."""
    return lake if "://" in lake else str(Path(lake).absolute())


class AnalyticsSettings(BaseSettings):
    """`DAYBOOK_SPARK_JARS`: the folder with Spark's Kafka, Avro and Delta jars. Java is at `JAVA_HOME`. `spark_memory`
    is the driver's; `spark_executor_…` and `spark_driver_host` count on a cluster alone."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", secrets_dir=SECRETS)

    kafka: str = "127.0.0.1:27492"
    database_url: str = "postgresql://daybook@127.0.0.1:27432/daybook"
    spark_jars: Path = Path()
    spark_master: str = "local[*]"
    spark_memory: str = "1g"
    spark_executor_memory: str = "640m"
    spark_executor_cores: int | None = None
    """None: what the cluster gives."""
    spark_driver_host: str = "127.0.0.1"
    """Where the executors of a cluster find the driver."""
    lake: str = ".daybook/lake"
    spark_scratch: Path | None = None
    """Where Spark spills; None: the system's temporary folder."""
