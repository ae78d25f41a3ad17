"""Parts of the lake: written aside, measured, then named in the manifest; removed when no manifest names them."""

import fcntl
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.errors import AnalyticsError
from analytics.lake.manifest import (
    NO_SCHEMA,
    REBUILDING,
    Manifest,
    NoLake,
    Part,
    part_folder,
    read_manifest,
    size,
)
from analytics.offsets import Offsets

ROWS_PER_FILE = 2_000_000
BY = ("topic", "day")
FOLDERS = ds.partitioning(pa.schema([(name, pa.string()) for name in BY]), flavor="hive")


class LakeBusy(AnalyticsError):
    """Another process is writing the lake."""


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Acquires the lake's lock; the system releases it when this process ends. Raises LakeBusy. It first removes what
    an earlier writer left incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeBusy(f"another process is writing the lake in {folder}") from None
        _sweep(folder)
        yield


def write_part(records: DataFrame, folder: Path) -> tuple[Part, Offsets]:
    """Write `records` as a new part that no manifest names yet; with the offsets behind its last records. Where there
    are no records, the part has no rows and no folder."""
    name = uuid.uuid4().hex[:12]
    aside = folder / "aside" / name
    dated = records.withColumn("day", F.to_date("recorded_at"))
    writing = dated.write.option("maxRecordsPerFile", ROWS_PER_FILE).option("compression", "zstd")
    writing.partitionBy(*BY).parquet(str(aside))
    schemas, ends = _measured(aside)
    part = Part(name, size(aside), schemas)
    if not part.rows:
        shutil.rmtree(aside)
        return part, ends
    path = part_folder(folder, name)
    path.parent.mkdir(exist_ok=True)
    aside.rename(path)
    return part, ends


def _measured(part: Path) -> tuple[dict[str, int], Offsets]:
    """Records per schema id and the offsets behind the last ones, from the files themselves."""
    schemas: dict[str, int] = {}
    ends: dict[str, dict[int, int]] = {}
    if not list(part.rglob("*.parquet")):
        return schemas, ends
    files = ds.dataset(part, format="parquet", partitioning=FOLDERS)
    table = files.to_table(columns=["topic", "partition", "offset", "schema_id"])
    for row in table.group_by("schema_id").aggregate([([], "count_all")]).to_pylist():
        key = NO_SCHEMA if row["schema_id"] is None else str(row["schema_id"])
        schemas[key] = row["count_all"]
    for row in table.group_by(["topic", "partition"]).aggregate([("offset", "max")]).to_pylist():
        ends.setdefault(row["topic"], {})[row["partition"]] = row["offset_max"] + 1
    return schemas, ends


def _sweep(folder: Path) -> None:
    try:
        manifest: Manifest | None = read_manifest(folder)
    except NoLake:
        manifest = None
    named = {part.name for part in manifest.parts} | set(manifest.retired) if manifest else set()
    kept = {part_folder(folder, name).name for name in named}
    unnamed = [part for part in folder.glob("parts/*") if part.name not in kept]
    checkpoints = [
        path for path in folder.glob("checkpoint-*") if not manifest or path.name != manifest.checkpoint
    ]
    for path in (*unnamed, *checkpoints, folder / "aside"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / REBUILDING).unlink(missing_ok=True)
