"""The marts as they were written, as plain rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow.parquet as pq

from infra.base.errors import DaybookError

Row = Mapping[str, Any]
NEEDED = (
    *("orders", "daily_revenue", "order_funnel", "stock_ledger", "stockouts", "customers"),
    *("customer_cohorts", "guests", "customer_skus", "basket_pairs", "saga_health"),
)


class Marts(Protocol):
    """The rows of each mart, by its name."""

    def __getitem__(self, mart: str, /) -> Sequence[Row]: ...


class NotTogether(DaybookError):
    """Marts are missing, or were not read to the same offsets, or not to the end of the log."""


class Outputs:
    """The folder of `daybook analytics run`. Raises NotTogether."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        absent = [name for name in NEEDED if not (folder / name / "_log.json").is_file()]
        if absent:
            raise NotTogether(f"not in {folder}: {', '.join(absent)}; `./daybook analytics run` makes them")
        logs = [msgspec.json.decode((folder / name / "_log.json").read_bytes()) for name in NEEDED]
        if any(log["as_of"] for log in logs):
            raise NotTogether("a mart is of an earlier moment: the file is compared with all that was loaded")
        if any(log["ends"] != logs[0]["ends"] for log in logs):
            raise NotTogether("the marts were read to different offsets: run them together")

    def __getitem__(self, mart: str) -> Sequence[Row]:
        rows: list[Row] = pq.read_table(self._folder / mart).to_pylist()
        return rows
