"""The expectation of the commands' sender: the only account that does not come from the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.evidence.comparison import Comparison, Difference, join_accounts, summary
from analytics.evidence.entities import NAMED_KEYS
from analytics.evidence.verdict import BadExpectation

ACCOUNTS = ("expected", "log")
SCHEMAS: Mapping[str, str] = {
    "orders": "entity string, status string, gross long, refund long",
    "stock": "entity string, on_hand long, reserved long",
}


@dataclass(frozen=True)
class Expectation:
    """Rows of SCHEMAS by kind. What the sender began has a correlation id that begins with `correlation`."""

    rows: Mapping[str, Sequence[tuple[Any, ...]]]
    correlation: str


def read_expectation(file: Path) -> Expectation:
    """From a JSON object of objects by kind and key; more fields than these may stand in it. Raises BadExpectation."""
    try:
        content = msgspec.json.decode(file.read_bytes())
        rows = {
            kind: [(key, *(row[name] for name in _fields(kind))) for key, row in content[kind].items()]
            for kind in SCHEMAS
        }
        return Expectation(rows, str(content["correlation"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadExpectation(f"{file}: {error!r}") from error


def touched_by_others(session: SparkSession, expectation: Expectation, events: DataFrame) -> DataFrame:
    """Returns the entities (`entity`) with an event that another sender caused. A retry by an order is correlated
    with the order."""
    orders = session.createDataFrame(
        [(key,) for key, *_ in expectation.rows["orders"]], "correlation_id string"
    )
    foreign = events.where(~F.col("correlation_id").startswith(expectation.correlation))
    return foreign.join(orders, "correlation_id", "left_anti").select("entity").distinct()


def compare(
    session: SparkSession, expectation: Expectation, kind: str, log: DataFrame, events: DataFrame
) -> tuple[Comparison, list[Difference]]:
    """Compares the expected entities of a kind with the log's; counts those that another sender changed. `events` are
    the envelopes of the kind. An entity that is only in the log differs too."""
    others = touched_by_others(session, expectation, events).persist()
    rows = session.createDataFrame(expectation.rows[kind], SCHEMAS[kind]).join(others, "entity", "left_anti")
    log = log.join(others, "entity", "left_anti")
    fields = _fields(kind)
    if kind == "stock":
        # A SKU of which nothing is left, or never was, need not be in either account.
        rows, log = (account.where("on_hand <> 0 OR reserved <> 0") for account in (rows, log))
    joined = join_accounts({"expected": rows, "log": log}, fields).persist()
    summed = [name for name in fields if name != "status"]
    result = replace(summary(f"expected {kind}", joined, ACCOUNTS, summed), left_out=others.count())
    differing = joined.where(~F.col("same")).orderBy("entity").limit(NAMED_KEYS).collect()
    joined.unpersist()
    others.unpersist()
    return result, [
        Difference(
            f"expected {kind}",
            row["entity"],
            None,
            "; ".join(f"{name}: {row[f'{name}_rendering'] or 'nothing'}" for name in ACCOUNTS),
        )
        for row in differing
    ]


def _fields(kind: str) -> list[str]:
    return [column.split()[0] for column in SCHEMAS[kind].split(", ") if not column.startswith("entity")]
