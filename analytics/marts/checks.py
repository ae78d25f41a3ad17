"""Checks the rows of a mart against its definition before they are published; DuckDB reads what Spark wrote."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from analytics.errors import AnalyticsError
from analytics.marts.catalogue import Mart


class Unfit(AnalyticsError):
    """The rows of a mart contradict its definition, so they were not published."""


def check(mart: Mart, files: Path, others: Mapping[str, Path]) -> int:
    """Returns how many rules hold of all rows in the folder `files`. `others`: the folders of marts that saw the same
    events; a column's reference to any other mart is not checked.

    Raises Unfit, with each rule that is broken and in how many rows."""
    rows = rows_of(files)
    with duckdb.connect() as connection:
        written = [name for name, *_ in connection.execute(f"DESCRIBE {rows}").fetchall()]
        if set(written) != set(mart.definition.columns):
            differing = ", ".join(sorted(set(written) ^ set(mart.definition.columns)))
            raise Unfit(f"{mart.name}: these columns are defined or written, not both: {differing}")
        rules = _rules(mart, others)
        counts = ", ".join(f"count(*) FILTER (NOT coalesce({rule}, false))" for rule in rules)
        broken = connection.execute(f"SELECT {counts} FROM ({rows})").fetchone() or ()
        key = ", ".join(mart.grain)
        again = f"SELECT count(*) FROM (SELECT 1 FROM ({rows}) GROUP BY {key} HAVING count(*) > 1)"
        twice = connection.execute(again).fetchone() or (0,)
    reasons = [
        f"{rule} (rows that break it: {count:,})" for rule, count in zip(rules, broken, strict=True) if count
    ]
    if twice[0]:
        reasons.append(f"one row per {key} (keys with more: {twice[0]:,})")
    if reasons:
        raise Unfit(f"{mart.name} was not published. Broken: {'; '.join(reasons)}")
    return len(rules) + 1


def check_fresh(mart: Mart, copied: datetime, now: datetime) -> None:
    """Raises Unfit where the log was copied, at `copied`, longer ago than the mart allows."""
    hours = (now - copied) / timedelta(hours=1)
    if hours > mart.definition.fresh_hours:
        raise Unfit(
            f"{mart.name} was not published. The lake was updated {hours:,.1f} h ago, and this mart may be "
            f"{mart.definition.fresh_hours} h behind: `./daybook analytics lake update`, or name other marts"
        )


def _rules(mart: Mart, others: Mapping[str, Path]) -> list[str]:
    """Conditions on a row, in SQL."""
    rules = list(mart.definition.holds)
    for name, column in mart.definition.columns.items():
        own = []
        if column.one_of:
            own.append(f'"{name}" IN ({", ".join(map(_literal, column.one_of))})')
        other, _, field = column.refers_to.partition(".")
        if other in others:
            own.append(f'"{name}" IN (SELECT "{field}" FROM ({rows_of(others[other])}))')
        absent = f'"{name}" IS NULL OR '
        rules += [absent + rule for rule in own] if column.optional else own or [f'"{name}" IS NOT NULL']
    return rules


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


def rows_of(folder: Path) -> str:
    """What DuckDB reads the files of a mart's folder with."""
    return "FROM read_parquet('{}')".format(str(folder / "*.parquet").replace("'", "''"))
