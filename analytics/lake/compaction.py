"""Many small files become few: the same records, in new parts."""

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from analytics.lake.manifest import MANIFEST, LakeDamaged, Manifest, read_manifest, write_manifest
from analytics.lake.parts import BY, only_writer, write_part
from analytics.lake.reader import records

SMALL_BYTES = 128 * 1024 * 1024


def compact(session: SparkSession, folder: Path, small_bytes: int = SMALL_BYTES) -> Manifest:
    """Write the parts that are smaller than `small_bytes` as one, one file for each topic and day. The parts before
    stay until the next compaction, for readers that have begun with them. Raises NoLake, LakeBusy and LakeDamaged."""
    with only_writer(folder):
        lake = read_manifest(folder)
        small = [part for part in lake.parts if part.bytes < small_bytes]
        if len(small) < 2:
            return lake
        merged = records(session, folder, small).repartition(*BY).sortWithinPartitions("partition", "offset")
        part, _ = write_part(merged, folder)
        if part.rows != sum(small_part.rows for small_part in small):
            raise LakeDamaged(
                f"{folder}: {part.rows} records of {sum(small_part.rows for small_part in small)} were found"
            )
        lake = replace(
            lake,
            generation=lake.generation + 1,
            parts=(*(kept for kept in lake.parts if kept not in small), part),
            retired=tuple(small_part.name for small_part in small),
        )
        write_manifest(lake, folder / MANIFEST)
        return lake
