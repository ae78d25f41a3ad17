"""Checks the rows of a mart against its definition before they are published; DuckDB reads what Spark wrote."""

import os
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
from pyarrow.dataset import Dataset, FileSystemDataset
from pyarrow.fs import LocalFileSystem

from analytics.errors import AnalyticsError
from analytics.marts.catalogue import Mart

MEMORY, BATCH = "256MB", 16_384  # beyond that, DuckDB spills; rows at a time


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
    distinct = f"SELECT (SELECT count(*) FROM made) - count(*) FROM (SELECT DISTINCT {key} FROM made)"
    with (
        TemporaryDirectory(dir=os.environ.get("DAYBOOK_SPARK_SCRATCH")) as spilled,
        duckdb.connect(config={"temp_directory": spilled, "memory_limit": MEMORY}) as connection,
    ):
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in {**others, "made": rows}.items():
            if isinstance(table, FileSystemDataset) and isinstance(table.filesystem, LocalFileSystem):
                connection.read_parquet(table.files).create_view(name)  # takes DuckDB half the memory
            else:
                connection.register(name, table)
        broken = connection.execute(f"SELECT {', '.join(counts.values())} FROM made").fetchall()[0]
        by_rule = dict(zip(counts, broken, strict=True))
        # One at a time, as queries that can spill: such a set of a large mart does not fit into the memory.
        for rule, query in (_references(mart, others) | {f"one row per {key}": distinct}).items():
            by_rule[rule] = connection.execute(query).fetchall()[0][0]
        if reasons := [f"{rule} (rows that break it: {count:,})" for rule, count in by_rule.items() if count]:
            raise Unfit(f"{mart.name} was not published. Broken: {'; '.join(reasons)}")
        yield len(by_rule), connection.sql(f"FROM made ORDER BY {key}").to_arrow_reader(BATCH)


def check_fresh(mart: Mart, copied: datetime, now: datetime) -> None:
    """Raises Unfit where the log was copied, at `copied`, longer ago than the mart allows."""
    hours = (now - copied) / timedelta(hours=1)
    if hours > mart.definition.fresh_hours:
        raise Unfit(
            f"{mart.name} was not published. The lake was updated {hours:,.1f} h ago, and this mart may be "
            f"{mart.definition.fresh_hours} h behind: `./daybook analytics lake update`, or name other marts"
        )


def _rules(mart: Mart, others: Container[str]) -> list[str]:
    """Conditions on a row, in SQL."""
    rules = list(mart.definition.holds)
    for name, column in mart.definition.columns.items():
        if column.one_of:
            absent = f'"{name}" IS NULL OR ' if column.optional else ""
            rules.append(f'{absent}"{name}" IN ({", ".join(map(_literal, column.one_of))})')
        elif not column.optional and column.refers_to.partition(".")[0] not in others:
            rules.append(f'"{name}" IS NOT NULL')
    return rules


def _references(mart: Mart, others: Container[str]) -> dict[str, str]:
    """By rule, how many rows break it, in SQL: those without a row of another mart."""
    queries = {}
    for name, column in mart.definition.columns.items():
        other, _, field = column.refers_to.partition(".")
        if other in others:
            rule = f'made."{name}" = "{other}"."{field}"'
            absent = f'"{name}" IS NULL' if column.optional else "false"
            queries[rule] = f'SELECT count(*) FROM made ANTI JOIN "{other}" ON {rule} WHERE NOT {absent}'
    return queries


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"
