"""Writes a mart as Parquet, atomically, together with the offsets that were read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from analytics.jobs.replacement import replaced
from analytics.marts.catalogue import Mart
from analytics.terminal import Table

LOG_FILE = "_log.json"
SHOWN_ROWS = 5
SHOWN_COLUMNS = 10
MONEY = frozenset({"gross", "net", "refund", "spent", "lost", "lost_with_orders"})
REVENUE = MONEY | {"returned"}  # elsewhere, orders or units


@dataclass(frozen=True)
class OutputReading:
    """What one run has read, for every output of it.

    `ends`: topic → partition → exclusive offset. `as_of` (ISO) and `knowledge` are null where all was read.
    `set_aside` counts records that do not count; `first` names some of them with position and reason.
    """

    source: str
    ends: Mapping[str, Mapping[int, int]]
    as_of: str | None
    knowledge: str | None
    set_aside: int
    first: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        aside = {"records": self.set_aside, "first": [dict(record) for record in self.first]}
        cut = {"as_of": self.as_of, "knowledge": self.knowledge}
        return {"source": self.source, "ends": self.ends, "set_aside": aside} | cut


def write(frame: DataFrame, name: str, mart: Mart, reading: OutputReading, folder: Path) -> None:
    """One Parquet file in the order of its grain, and LOG_FILE; they take the place of `folder` together."""
    with replaced(folder) as fresh:
        frame.coalesce(1).sort(*mart.grain).write.parquet(str(fresh))
        content = msgspec.json.encode({"mart": name} | reading.to_json())
        (fresh / LOG_FILE).write_bytes(msgspec.json.format(content, indent=1))


def read_ends(folder: Path) -> dict[str, dict[int, int]]:
    """The offsets of an output. Raises ValueError where it has none."""
    try:
        ends = msgspec.json.decode((folder / LOG_FILE).read_bytes())["ends"]
        return {
            topic: {int(number): int(end) for number, end in parts.items()} for topic, parts in ends.items()
        }
    except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / LOG_FILE} names no offsets") from error


def preview(name: str, folder: Path) -> Table:
    """The first rows and columns of an output; money as decimals."""
    table = pq.read_table(folder)
    columns = table.column_names[:SHOWN_COLUMNS]
    more = len(table.column_names) - len(columns)
    title = f"{name}, rows: {table.num_rows:,}" + (f", columns not shown: {more}" if more else "")
    money = REVENUE if name == "daily_revenue" else MONEY
    shown = Table(*columns, title=title, title_justify="left")
    for row in table.slice(0, SHOWN_ROWS).select(columns).to_pylist():
        shown.add_row(*(_text(value, column in money) for column, value in row.items()))
    return shown


def _text(value: Any, money: bool) -> str:
    match value:
        case None:
            return "–"
        case int() if money:
            return f"{value / 1e6:,.2f}"
        case float():
            return f"{value:.3f}"
        case _:
            return str(value)
