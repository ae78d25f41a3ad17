"""Checks the rows of a mart against its definition before they are published; DuckDB reads what Spark wrote."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
from pyarrow.dataset import Dataset, FileSystemDataset
from pyarrow.fs import LocalFileSystem

from analytics.errors import AnalyticsError
from analytics.marts.catalogue import Mart

MEMORY, BATCH = "256MB", 16_384  # to sort, more is spilled; rows at a time


class Unfit(AnalyticsError):
    """The rows of a mart contradict its definition, so they were not published."""


@contextmanager
def checked(
    mart: Mart, rows: Dataset | pa.Table, others: Mapping[str, Dataset | pa.Table]
) -> Iterator[tuple[int, pa.RecordBatchReader]]:
    """Yields how many rules hold of all `rows`, and these in the order of the grain. `others`: marts that saw the same
    events; a column's reference to any other mart is not checked.

    Raises Unfit, with each rule that is broken and in how many rows."""
    if differing := set(rows.schema.names) ^ set(mart.definition.columns):
        names = ", ".join(sorted(differing))
        raise Unfit(f"{mart.name}: these columns are defined or written, not both: {names}")
    key = ", ".join(mart.grain)
    counts = {rule: f"count(*) FILTER (NOT coalesce({rule}, false))" for rule in _rules(mart, others)}
    counts[f"one row per {key}"] = f"count(*) - count(DISTINCT ({key}))"
    with (
        TemporaryDirectory() as spilled,
        duckdb.connect(config={"temp_directory": spilled}) as connection,
    ):
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in {**others, "made": rows}.items():
            if isinstance(table, FileSystemDataset) and isinstance(table.filesystem, LocalFileSystem):
                connection.read_parquet(table.files).create_view(name)  # takes DuckDB half the memory
            else:
                connection.register(name, table)
        broken = connection.execute(f"SELECT {', '.join(counts.values())} FROM made").fetchall()[0]
        by_rule = dict(zip(counts, broken, strict=True))
        if reasons := [f"{rule} (rows that break it: {count:,})" for rule, count in by_rule.items() if count]:
            raise Unfit(f"{mart.name} was not published. Broken: {'; '.join(reasons)}")
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        yield len(counts), connection.sql(f"FROM made ORDER BY {key}").to_arrow_reader(BATCH)


def check_fresh(mart: Mart, copied: datetime, now: datetime) -> None:
    """Raises Unfit where the log was copied, at `copied`, longer ago than the mart allows."""
    hours = (now - copied) / timedelta(hours=1)
    if hours > mart.definition.fresh_hours:
        raise Unfit(
            f"{mart.name} was not published. The lake was updated {hours:,.1f} h ago, and this mart may be "
            f"{mart.definition.fresh_hours} h behind: `./daybook analytics lake update`, or name other marts"
        )


def _rules(mart: Mart, others: Mapping[str, object]) -> list[str]:
    """Conditions on a row, in SQL."""
    rules = list(mart.definition.holds)
    for name, column in mart.definition.columns.items():
        own = []
        if column.one_of:
            own.append(f'"{name}" IN ({", ".join(map(_literal, column.one_of))})')
        other, _, field = column.refers_to.partition(".")
        if other in others:
            own.append(f'"{name}" IN (SELECT "{field}" FROM "{other}")')
        absent = f'"{name}" IS NULL OR '
        rules += [absent + rule for rule in own] if column.optional else own or [f'"{name}" IS NOT NULL']
    return rules


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"
