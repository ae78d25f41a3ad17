"""The lake as a replay: the same frames as from the log."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from analytics.envelope import LOG_COLUMNS, with_fault
from analytics.lake.manifest import Part, check_part, part_folder, read_manifest
from analytics.replay import Replay
from contracts.lock import load_lock


def open_lake(session: SparkSession, folder: Path) -> Replay:
    """What the lake holds now; later updates and compactions do not change it. Raises NoLake and LakeDamaged.

    What can be read is judged by the contracts of today, not by those of the day it was copied.
    """
    lake, lock = read_manifest(folder), load_lock()
    return Replay(lake.ends, with_fault(records(session, folder, lake.parts), lock), lock)


def records(session: SparkSession, folder: Path, parts: Sequence[Part]) -> DataFrame:
    """The columns of LOG_COLUMNS. Raises LakeDamaged."""
    for part in parts:
        check_part(folder, part)
    schema = StructType.fromDDL(LOG_COLUMNS)
    if not any(part.rows for part in parts):
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema).option("basePath", str(folder / "parts"))
    files = reader.parquet(*(str(part_folder(folder, part.name)) for part in parts))
    return files.select(*schema.names)
