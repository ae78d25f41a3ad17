"""What analytics needs to know, from the environment."""

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class AnalyticsSettings(BaseSettings):
    """`DAYBOOK_SPARK_JARS`: the folder with Spark's Kafka and Avro jars. Java is at `JAVA_HOME`."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_")

    kafka: str = "127.0.0.1:27492"
    database_url: str = "postgresql://daybook@127.0.0.1:27432/daybook"
    spark_jars: Path
    spark_master: str = "local[*]"
    spark_memory: str = "1g"
    lake: Path = Path(".daybook/lake")
    spark_scratch: Path | None = None
    """Where Spark spills; None: the system's temporary folder."""
