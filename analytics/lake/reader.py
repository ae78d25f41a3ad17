"""Reads the lake as a replay: the same frames as from the log."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from analytics.envelope import LOG_COLUMNS
from analytics.lake.manifest import Part, check_part, part_folder, read_manifest
from analytics.log_rule import find_exceptions, with_fault
from analytics.replay import Replay
from contracts.lock import load_lock

LAKE_COLUMNS = f"{LOG_COLUMNS}, kind string"
"""Every record is kept, with its kind by key and headers: decisions and other epochs may come later."""


def open_lake(session: SparkSession, folder: Path) -> Replay:
    """Returns the current content of the lake; later updates and compactions do not change it. Raises NoLake and
    LakeDamaged. Which records count follows from today's contracts and the decisions of the lake's last update."""
    lake, lock = read_manifest(folder), load_lock()
    log = records(session, folder, lake.parts)
    partitions = {topic: len(numbers) for topic, numbers in lake.ends.items()}
    exceptions = find_exceptions(log, partitions, lake.decisions, lock)
    return Replay(lake.ends, with_fault(log.drop("kind"), exceptions), lock, exceptions)


def records(session: SparkSession, folder: Path, parts: Sequence[Part]) -> DataFrame:
    """Returns the columns of LAKE_COLUMNS. Raises LakeDamaged."""
    for part in parts:
        check_part(folder, part)
    schema = StructType.fromDDL(LAKE_COLUMNS)
    if not any(part.rows for part in parts):
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema).option("basePath", str(folder / "parts"))
    files = reader.parquet(*(str(part_folder(folder, part.name)) for part in parts))
    return files.select(*schema.names)
