"""Compares the marts with the retail file, figure by figure: both are counted in SQL (`figures.sql`)."""

import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import csv

from analytics.delta import Location, last_commit
from analytics.marts.catalogue import built
from analytics.marts.customers import LEAST_BASKETS, LEAST_SUPPORT, MOST_SKUS
from infra.base.errors import DaybookError
from infra.base.settings import ROOT

RETAIL_CSV = ROOT / "infra" / "data" / "online-retail.csv.xz"
FIGURES = Path(__file__).with_name("figures.sql")
NEEDED = (
    *("orders", "daily_revenue", "order_funnel", "stock_ledger", "stockouts", "customers"),
    *("customer_cohorts", "guests", "customer_skus", "basket_pairs", "saga_health"),
)
SHOWN = 5
_FIGURE = re.compile(r"^-- figure (\w+): (.*)$", re.MULTILINE)


class NotTogether(DaybookError):
    """Marts are missing, or were not read to the same offsets, or not to the end of the log."""


@dataclass(frozen=True)
class Check:
    """One figure, compared key by key; `first` shows the first keys that differ, with both values."""

    mart: str
    figure: str
    keys: int
    differing: int
    first: Sequence[str]


def require_together(folder: Location) -> None:
    """Raises NotTogether unless the marts in `folder` (of `daybook analytics run`) are of the same, whole log."""
    tables = built(folder)
    absent = [name for name in NEEDED if name not in tables]
    if absent:
        raise NotTogether(f"not in {folder}: {', '.join(absent)}; `./daybook analytics run` makes them")
    logs = [last_commit(tables[name])[1] for name in NEEDED]
    if any(log["as_of"] or log["known_by"] for log in logs):
        raise NotTogether("a mart is of an earlier moment: the file is compared with all that was loaded")
    if any(log["ends"] != logs[0]["ends"] for log in logs):
        raise NotTogether("the marts were read to different offsets: run them together")


def loaded_days(marts: Location) -> tuple[date, date] | None:
    """The first and the last day on which the shop has an order; None where it has none."""
    with duckdb.connect() as connection:
        connection.register("order_funnel", built(marts)["order_funnel"].to_pyarrow_dataset())
        first, last = connection.execute("SELECT min(day), max(day) FROM order_funnel").fetchall()[0]
    return None if first is None else (first, last)


def check(marts: Location, first: date, last: date, file: Path = RETAIL_CSV) -> Iterator[Check]:
    """Compare every figure that must agree exactly, for the days that are loaded."""
    views, *figures = _FIGURE.split(FIGURES.read_text("utf-8"))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("sheet", _sheet(file))
        for name, delta in built(marts).items():
            connection.register(name, delta.to_pyarrow_dataset())
        connection.execute(
            "CREATE TABLE cancelled AS SELECT order_id AS name FROM orders WHERE cancelled_at IS NOT NULL"
        )
        variables = {"most_skus": MOST_SKUS, "least_baskets": LEAST_BASKETS, "least_support": LEAST_SUPPORT}
        for name, value in {**variables, "first": f"DATE '{first}'", "last": f"DATE '{last}'"}.items():
            connection.execute(f"SET VARIABLE {name} = {value}")
        connection.execute(views)
        for mart, figure, queries in zip(figures[::3], figures[1::3], figures[2::3], strict=True):
            by_file, by_mart = (_counted(connection, query) for query in queries.split("-- mart\n"))
            yield _compare(mart, figure, by_file, by_mart)


def _sheet(file: Path) -> pa.Table:
    """The rows of the file, every value as text, and the `place` of each."""
    with lzma.open(file) as content:
        names = csv.open_csv(content).schema.names
    texts = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    with lzma.open(file) as content:
        rows = csv.read_csv(content, convert_options=texts)
    return rows.append_column("place", pa.array(range(len(rows)), pa.int64()))


def _counted(connection: duckdb.DuckDBPyConnection, query: str) -> Mapping[Any, tuple[Any, ...]]:
    return {key: tuple(values) for key, *values in connection.execute(query).fetchall()}


def _compare(mart: str, figure: str, by_file: Mapping[Any, Any], by_mart: Mapping[Any, Any]) -> Check:
    keys = by_file.keys() | by_mart.keys()
    wrong = sorted((key for key in keys if by_file.get(key) != by_mart.get(key)), key=str)
    first = [f"{key}: file {by_file.get(key)}, mart {by_mart.get(key)}" for key in wrong[:SHOWN]]
    return Check(mart, figure, len(keys), len(wrong), first)
