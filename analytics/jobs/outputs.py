"""Writes a mart as Parquet together with the offsets that were read, and replaces the former output as a whole.

A killed job leaves the old or the new folder; if it was killed between two renames, the next one restores the old."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyarrow.dataset import dataset
from pyspark.sql import DataFrame

from analytics.errors import AnalyticsError
from analytics.marts.catalogue import LOG_FILE, Mart
from analytics.marts.checks import check
from analytics.money import with_decimals
from analytics.terminal import Table

SHOWN_ROWS = 5
SHOWN_COLUMNS = 10


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


def write(frame: DataFrame, mart: Mart, reading: OutputReading, folder: Path) -> None:
    """Writes Parquet files in the order of the grain, money as decimals, and LOG_FILE; they replace `folder` together,
    once all that `marts.yaml` says of the rows holds. Raises Unfit, and Occupied where `folder` has something else."""
    if folder.exists() and any(folder.iterdir()) and not (folder / LOG_FILE).exists():
        raise Occupied(f"{folder} has something else in it than a mart: choose another folder with --out")
    with replaced(folder) as fresh:
        with_decimals(frame, mart.money).sort(*mart.grain).write.parquet(str(fresh))
        rules = check(mart, fresh, _read_alike(mart, folder, reading))
        content = msgspec.json.encode({"mart": mart.name, "rules": rules} | msgspec.to_builtins(reading))
        (fresh / LOG_FILE).write_bytes(msgspec.json.format(content, indent=1))


def _read_alike(mart: Mart, folder: Path, reading: OutputReading) -> dict[str, Path]:
    """The marts beside `folder` that `mart` refers to and that were made of the same events."""
    same = msgspec.json.decode(msgspec.json.encode(reading))
    logs = {name: folder.parent / name / LOG_FILE for name in mart.refers_to}
    return {
        name: log.parent
        for name, log in logs.items()
        if log.exists() and same.items() <= msgspec.json.decode(log.read_bytes()).items()
    }


def read_earlier(folder: Path) -> OutputReading:
    """Returns what an output has seen. Raises ValueError if it does not say."""
    try:
        return msgspec.json.decode((folder / LOG_FILE).read_bytes(), type=OutputReading)
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / LOG_FILE} names no offsets") from error


def preview(mart: Mart, folder: Path) -> Table:
    """Returns the first rows and columns of an output."""
    rows = dataset(folder)
    columns = rows.schema.names[:SHOWN_COLUMNS]
    more = len(rows.schema.names) - len(columns)
    title = f"{mart.name}, rows: {rows.count_rows():,}" + (f", columns not shown: {more}" if more else "")
    shown = rows.head(SHOWN_ROWS, columns=columns).to_pylist()
    cells = ([_text(value, column in mart.money) for column, value in row.items()] for row in shown)
    return Table(*columns, rows=cells, title=title, title_justify="left")


def _text(value: Any, money: bool) -> str:
    match value:
        case None:
            return "–"
        case _ if money:
            return f"{value:,.2f}"
        case float():
            return f"{value:.3f}"
        case _:
            return str(value)


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yields a folder to write; it replaces `folder` only if the block succeeds. Between two renames there is none."""
    fresh, former = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    if former.exists() and not folder.exists():
        former.rename(folder)  # killed between two renames
    shutil.rmtree(fresh, ignore_errors=True)
    yield fresh
    if folder.exists():
        shutil.rmtree(former, ignore_errors=True)
        folder.rename(former)
    fresh.rename(folder)
    shutil.rmtree(former, ignore_errors=True)
