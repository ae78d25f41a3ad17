"""Many small files become few: the same records, in new parts."""

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from analytics.lake.manifest import MANIFEST, LakeDamaged, Manifest, read_manifest, write_manifest
from analytics.lake.parts import BY, only_writer, write_part
from analytics.lake.reader import records

SMALL_BYTES = 128 * 1024 * 1024


def compact(session: SparkSession, folder: Path, small_bytes: int = SMALL_BYTES) -> Manifest:
    """Write the parts that are smaller than `small_bytes` as one, one file for each topic and day.

    The parts before stay until the next compaction, for readers that have begun with them.
    Raises NoLake, LakeBusy and LakeDamaged.
    """
    with only_writer(folder):
        lake = read_manifest(folder)
        small = [part for part in lake.parts if part.bytes < small_bytes]
        if len(small) < 2:
            return lake
        gathered = (
            records(session, folder, small).repartition(*BY).sortWithinPartitions("partition", "offset")
        )
        part, _ = write_part(gathered, folder)
        if part.rows != sum(one.rows for one in small):
            raise LakeDamaged(f"{folder}: {part.rows} records of {sum(one.rows for one in small)} were found")
        lake = replace(
            lake,
            generation=lake.generation + 1,
            parts=(*(one for one in lake.parts if one not in small), part),
            retired=tuple(one.name for one in small),
        )
        write_manifest(lake, folder / MANIFEST)
        return lake
