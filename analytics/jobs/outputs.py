"""Writes a mart as a Delta table; the commit that replaces its rows says what was read.

Spark writes the rows to files in `unchecked`; a killed job leaves them there."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.fs import DeltaStorageHandler
from pyarrow.dataset import Dataset, dataset
from pyarrow.fs import PyFileSystem
from pyspark.sql import DataFrame

from analytics.delta import METADATA, Location, last_commit, table
from analytics.errors import AnalyticsError
from analytics.marts.catalogue import Mart, built
from analytics.marts.checks import checked
from analytics.money import with_decimals
from analytics.terminal import Table

UNCHECKED = "unchecked"
READERS_HOURS = 1
"""So long a reader of the former rows may still open their files."""
SHOWN_ROWS, SHOWN_COLUMNS = 5, 10


class Occupied(AnalyticsError):
    """The folder of a mart has something else in it."""


@dataclass(frozen=True)
class SetAside:
    """How many records do not count, and some of them with position and reason."""

    records: int = 0
    first: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class OutputReading:
    """What a run has read; the same for all its outputs. An output of an earlier version does not say all of it.

    `ends`: topic → partition → exclusive offset. `log` identifies the log to which they belong: its copy in a lake has
    this name. `updated`: when the lake's update ended of which all was read, and `code`: which code made the rows; both
    so that a later run may keep them. `as_of` and `known_by` (ISO) are those of the selection, null if all was read."""

    source: str = "log"
    ends: Mapping[str, Mapping[int, int]]
    set_aside: SetAside = SetAside()
    log: str = ""
    updated: str = ""
    code: str = ""
    as_of: str | None = None
    known_by: str | None = None


def write(frame: DataFrame, mart: Mart, reading: OutputReading, out: Location) -> None:
    """Replaces the mart's table in `out` by rows in the order of its grain, money as decimals, once all that
    `marts.yaml` says of them holds. Raises Unfit, and Occupied where something else than a mart has its place."""
    check_place(mart.name, out)
    there = built(out, {mart.name, *mart.refers_to})
    with_decimals(frame, mart.money).write.mode("overwrite").parquet(f"{out}/{UNCHECKED}/{mart.name}")
    store, content = PyFileSystem(DeltaStorageHandler(f"{out}/{UNCHECKED}")), msgspec.to_builtins(reading)
    local = "://" not in str(out)
    written = dataset(f"{out}/{UNCHECKED}/{mart.name}") if local else dataset(mart.name, filesystem=store)
    with checked(mart, written, _read_alike(there, reading)) as (rules, rows):
        content |= {"mart": mart.name, "rules": rules}
        if former := there.get(mart.name):
            former.vacuum(READERS_HOURS, dry_run=False, enforce_retention_duration=False)
        write_deltalake(
            f"{out}/{mart.name}",
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            writer_properties=WriterProperties(compression="ZSTD", max_row_group_size=100_000),  # in memory
            commit_properties=CommitProperties({METADATA: msgspec.json.encode(content).decode()}),
        )
    store.delete_dir(mart.name)


def check_place(name: str, out: Location) -> None:
    """Raises Occupied where a mart would replace something else. A job asks before it starts Spark."""
    folder = Path(f"{out}/{name}")
    if not built(out, [name]) and (table(out, name) or (folder.is_dir() and any(folder.iterdir()))):
        raise Occupied(f"{out}/{name} is no mart of this version: remove it, or choose another --out")


def _read_alike(marts: Mapping[str, DeltaTable], reading: OutputReading) -> dict[str, Dataset]:
    """Those of the marts that were made of the same events."""
    same = msgspec.json.decode(msgspec.json.encode(reading)).items()
    alike = (name for name, delta in marts.items() if same <= last_commit(delta)[1].items())
    return {name: marts[name].to_pyarrow_dataset() for name in alike}


def read_earlier(out: Location, name: str) -> OutputReading:
    """Returns what an output has seen. Raises ValueError if it does not say."""
    if (delta := built(out, [name]).get(name)) is None:
        raise ValueError(f"there is no mart in {out}/{name}")
    return msgspec.convert(last_commit(delta)[1], OutputReading, str_keys=True, strict=False)


def preview(mart: Mart, out: Location) -> Table:
    """Returns the first rows and columns of an output."""
    rows = DeltaTable(f"{out}/{mart.name}").to_pyarrow_dataset()
    columns = rows.schema.names[:SHOWN_COLUMNS]
    more = len(rows.schema.names) - len(columns)
    title = f"{mart.name}, rows: {rows.count_rows():,}" + (f", columns not shown: {more}" if more else "")
    shown = rows.head(SHOWN_ROWS, columns=columns).to_pylist()
    cells = (map(_text, row.values()) for row in shown)
    return Table(*columns, rows=cells, title=title, title_justify="left")


def _text(value: Any) -> str:
    match value:
        case None:
            return "–"
        case Decimal():
            return f"{value:,.2f}"
        case float():
            return f"{value:.3f}"
        case _:
            return str(value)
