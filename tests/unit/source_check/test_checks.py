"""A file of seven invoices, and the marts of the shop that they make: in agreement, then not."""

import copy
import json
import lzma
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from analytics.delta import METADATA
from infra.lab.source_check.checks import Check, NotTogether, check, loaded_days, require_together

FILE = """InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
1,10001a,MUG,3,2011-03-07 09:00:00,2.50,17850.0,United Kingdom
1,POST,POSTAGE,1,2011-03-07 09:00:00,18.00,17850.0,United Kingdom
2,10001A,MUG,2,2011-03-07 10:00:00,2.50,,France
2,10002,JUG,1,2011-03-07 10:01:00,0.085,,France
3,84880,CLOCK,1,2011-03-08 09:00:00,4.00,17850.0,United Kingdom
4,10002,JUG,5,2011-03-08 09:30:00,1.00,13047.0,Norway
C5,10002,JUG,-5,2011-03-08 09:40:00,1.00,13047.0,Norway
C6,10001A,MUG,-9,2011-03-09 08:00:00,2.50,17850.0,United Kingdom
7,10002,broken,-2,2011-03-09 09:00:00,0.00,,United Kingdom
A8,B,Adjust bad debt,1,2011-03-09 09:00:00,11062.06,,United Kingdom
"""
MONDAY, TUESDAY, WEDNESDAY = date(2011, 3, 7), date(2011, 3, 8), date(2011, 3, 9)
MARCH = date(2011, 3, 1)
POUND = Decimal(1)
UK = "United Kingdom"
NO_PAIRS = pa.schema(
    {
        **dict.fromkeys(("sku_a", "sku_b"), pa.string()),
        **dict.fromkeys(("baskets", "baskets_a", "baskets_b", "baskets_both"), pa.int64()),
    }
)


def row(names: str, *values: Any) -> dict[str, Any]:
    return dict(zip(names.split(), values, strict=True))


def at(day: date, hour: int, minute: int = 0) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)


def marts() -> dict[str, list[dict[str, Any]]]:
    """Invoice 4 was cancelled by C5; of C6 only the three mugs that were bought came back."""
    order = "order_id customer_id country placed_at units gross sold cancelled_at"
    moved = "sku day received returned_units adjusted reserved released"
    return {
        "orders": [
            row(order, "1", "17850", UK, at(MONDAY, 9), 3, Decimal("25.500000"), True, None),
            row(order, "2", None, "France", at(MONDAY, 10), 3, Decimal("5.085000"), True, None),
            row(order, "3", "17850", UK, at(TUESDAY, 9), 1, 4 * POUND, False, None),
            row(order, "4", "13047", "Norway", at(TUESDAY, 9, 30), 5, 5 * POUND, False, at(TUESDAY, 9, 40)),
        ],
        "daily_revenue": [
            row("day country orders units gross", MONDAY, UK, 1, 3, Decimal("25.500000")),
            row("day country orders units gross", MONDAY, "France", 1, 3, Decimal("5.085000")),
            row("day country orders units gross", WEDNESDAY, UK, 0, 0, Decimal(0)),
        ],
        "order_funnel": [
            row("day placed rejected cancelled expired", MONDAY, 2, 0, 0, 0),
            row("day placed rejected cancelled expired", TUESDAY, 2, 1, 1, 0),
        ],
        "saga_health": [
            row("day step outcome conversations skus", MONDAY, "reserve", "confirmed", 2, 3),
            row("day step outcome conversations skus", TUESDAY, "reserve", "confirmed", 1, 1),
            row("day step outcome conversations skus", TUESDAY, "reserve", "rejected", 1, 1),
            row("day step outcome conversations skus", TUESDAY, "release", "done", 1, 1),
        ],
        "stockouts": [row("sku short units lost", "84880", 1, 1, 4 * POUND)],
        "customers": [
            row(
                "customer_id first_day last_day orders units gross",
                *("17850", MONDAY, MONDAY, 1, 3, Decimal("25.500000")),
            )
        ],
        "customer_cohorts": [row("cohort months_later customers gross", MARCH, 0, 1, Decimal("25.500000"))],
        "guests": [row("month orders units gross", MARCH, 1, 3, Decimal("5.085000"))],
        "customer_skus": [
            row(
                "customer_id sku units spent returned_units refund",
                *("17850", "10001A", 3, Decimal("7.500000"), 3, Decimal("7.500000")),
            )
        ],
        "stock_ledger": [
            row(moved, "10001A", MARCH, 5, 0, 0, 0, 0),
            row(moved, "10001A", MONDAY, 0, 0, 0, 5, 0),
            row(moved, "10001A", WEDNESDAY, 0, 3, 0, 0, 0),
            row(moved, "10002", MARCH, 8, 0, 0, 0, 0),
            row(moved, "10002", MONDAY, 0, 0, 0, 1, 0),
            row(moved, "10002", TUESDAY, 0, 0, 0, 5, 5),
            row(moved, "10002", WEDNESDAY, 0, 0, -2, 0, 0),
        ],
        "basket_pairs": [],
    }


def written(outputs: dict[str, list[dict[str, Any]]], folder: Path, **other_log: Any) -> Path:
    """`outputs` as `daybook analytics run` leaves them, with `other_log` of the orders."""
    for name, rows in outputs.items():
        log = {
            "mart": name,
            "as_of": None,
            "known_by": None,
            "ends": {"stock.events": 7},
            **(other_log if name == "orders" else {}),
        }
        table = pa.Table.from_pylist(rows) if rows else NO_PAIRS.empty_table()
        metadata = CommitProperties(custom_metadata={METADATA: json.dumps(log)})
        write_deltalake(folder / name, table, commit_properties=metadata)
    return folder


@pytest.fixture
def differing_figures(tmp_path: Path) -> Any:
    file = tmp_path / "retail.csv.xz"
    file.write_bytes(lzma.compress(FILE.encode()))

    def checked(outputs: dict[str, list[dict[str, Any]]]) -> list[Check]:
        marts = written(outputs, tmp_path / "marts")
        return [result for result in check(marts, MONDAY, WEDNESDAY, file) if result.differing]

    return checked


def test_the_marts_of_the_file_agree(differing_figures: Any) -> None:
    assert differing_figures(marts()) == []


@pytest.mark.parametrize(
    ("mart", "position", "column", "value", "figure"),
    [
        ("orders", 0, "gross", Decimal(1), "whether sold"),
        ("orders", 3, "cancelled_at", at(TUESDAY, 9, 41), "a credit note for each"),
        ("daily_revenue", 1, "units", 4, "by day and country"),
        ("order_funnel", 1, "expired", 1, "expired by day"),
        ("saga_health", 0, "skus", 2, "reservations"),
        ("stockouts", 0, "lost", Decimal(0), "money by SKU"),
        ("customers", 0, "last_day", TUESDAY, "first and last day"),
        ("customer_cohorts", 0, "customers", 2, "by cohort"),
        ("guests", 0, "gross", Decimal(0), "by month"),
        ("customer_skus", 0, "spent", Decimal(0), "money by customer"),
        ("customer_skus", 0, "returned_units", 2, "came back"),
        ("customer_skus", 0, "refund", Decimal("7.500001"), "refunds"),
        ("stock_ledger", 3, "received", 7, "received"),
        ("stock_ledger", 6, "adjusted", -1, "adjusted"),
        ("stock_ledger", 5, "released", 4, "reserved and kept"),
        ("stock_ledger", 2, "returned_units", 4, "returned by SKU"),
    ],
)
def test_a_figure_that_differs_is_named(
    differing_figures: Any, mart: str, position: int, column: str, value: Any, figure: str
) -> None:
    wrong = copy.deepcopy(marts())
    wrong[mart][position][column] = value
    assert [result.mart for result in differing_figures(wrong) if figure in result.figure] == [mart]


def test_an_order_that_the_file_does_not_have_is_named(differing_figures: Any) -> None:
    more = marts()
    more["orders"].append({**more["orders"][0], "order_id": "walk-1"})
    (differing,) = differing_figures(more)
    assert differing.first[0].startswith("('walk-1',): file None")


def test_the_loaded_days_are_those_of_the_orders(tmp_path: Path) -> None:
    assert loaded_days(written(marts(), tmp_path)) == (MONDAY, TUESDAY)


def test_marts_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotTogether, match="orders, daily_revenue"):
        require_together(tmp_path)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ({"as_of": "2011-03-07"}, "an earlier moment"),
        ({"known_by": "2011-03-07"}, "an earlier moment"),
        ({"ends": {"stock.events": 8}}, "different offsets"),
    ],
)
def test_marts_of_different_logs_are_refused(tmp_path: Path, log: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotTogether, match=reason):
        require_together(written(marts(), tmp_path, **log))
