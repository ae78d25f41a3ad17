"""What the sender of the commands expects: the account that does not come from the log."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.evidence.comparing import Comparison, Difference, side_by_side, summary
from analytics.evidence.entities import NAMED_KEYS
from analytics.evidence.verdict import BadExpectation

ACCOUNTS = ("expected", "log")
SCHEMAS: Mapping[str, str] = {
    "orders": "entity string, status string, gross long, refund long",
    "stock": "entity string, on_hand long, reserved long",
}


def read_expectation(file: Path) -> Mapping[str, list[tuple[Any, ...]]]:
    """Rows of SCHEMAS from a JSON object of objects by kind and key; more fields than these may stand in it.

    Raises BadExpectation.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
        return {
            kind: [(key, *(row[name] for name in _fields(kind))) for key, row in content[kind].items()]
            for kind in SCHEMAS
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadExpectation(f"{file}: {error!r}") from error


def compare(
    session: SparkSession, file: Path, kind: str, log: DataFrame
) -> tuple[Comparison, list[Difference]]:
    """The expected entities of a kind beside the log's. What nobody expected differs, too."""
    rows = session.createDataFrame(read_expectation(file)[kind], SCHEMAS[kind])
    fields = _fields(kind)
    if kind == "stock":
        # A SKU of which nothing is left, or never was, need not be in either account.
        rows, log = (account.where("on_hand <> 0 OR reserved <> 0") for account in (rows, log))
    joined = side_by_side({"expected": rows, "log": log}, fields).persist()
    summed = [name for name in fields if name != "status"]
    result = summary(f"expected {kind}", joined, ACCOUNTS, summed)
    differing = joined.where(~F.col("same")).orderBy("entity").limit(NAMED_KEYS).collect()
    joined.unpersist()
    return result, [
        Difference(
            f"expected {kind}",
            row["entity"],
            None,
            "; ".join(f"{name}: {row[f'{name}_says'] or 'nothing'}" for name in ACCOUNTS),
        )
        for row in differing
    ]


def _fields(kind: str) -> list[str]:
    return [column.split()[0] for column in SCHEMAS[kind].split(", ") if not column.startswith("entity")]
