"""What `marts.yaml` says of a mart is checked before it is published."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analytics.marts.catalogue import MARTS, TABLES, Column, Definition, Mart
from analytics.marts.catalogue_page import catalogue_page
from analytics.marts.checks import Unfit, check_fresh, checked

COLUMNS = {
    "sku": Column("the article", refers_to="articles.sku"),
    "day": Column("the day"),
    "kind": Column("what moved it", one_of=("received", "issued")),
    "units": Column("how many", optional=True),
}
MOVES = Mart(
    "moves", Definition("what moved", "stock", ("sku", "day"), COLUMNS, ("units > 0",)), TABLES["orders"]
)
GOOD = [("a", 1, "received", 3), ("a", 2, "issued", 1), ("b", 1, "received", 2)]


OTHERS = {"articles": pa.table({"sku": ["a", "b"]})}


def written(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    return pa.table({name: [row[index] for row in rows] for index, name in enumerate(names)})


def test_correct_rows_are_counted_by_their_rules() -> None:
    with checked(MOVES, written(list(COLUMNS), GOOD[::-1]), OTHERS) as (rules, rows):
        assert rules == 5
        assert [tuple(row.values()) for row in rows.read_all().to_pylist()] == GOOD, "by sku and day"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("a", 1, "issued", 1), "one row per sku, day"),
        (("a", None, "issued", 1), '"day" IS NOT NULL'),
        (("a", 3, "lost", 1), "\"kind\" IN ('received', 'issued')"),
        (("c", 3, "issued", 1), 'made."sku" = "articles"."sku"'),
        ((None, 3, "issued", 1), 'made."sku" = "articles"."sku"'),
        (("a", 3, "issued", 0), "units > 0"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(row: tuple[Any, ...], reason: str) -> None:
    with (
        pytest.raises(Unfit, match="moves was not published") as refused,
        checked(MOVES, written(list(COLUMNS), [*GOOD, row]), OTHERS),
    ):
        pass
    assert reason in str(refused.value)
    assert str(refused.value).count("1)") == 1


def test_a_column_without_a_definition_is_refused() -> None:
    rows = [(*row, 0) for row in GOOD]
    with (
        pytest.raises(Unfit, match="not both: extra"),
        checked(MOVES, written([*COLUMNS, "extra"], rows), {}),
    ):
        pass


def test_a_reference_to_a_mart_of_other_events_is_not_checked() -> None:
    with checked(MOVES, written(list(COLUMNS), [("z", 1, "issued", 1)]), {}) as (rules, _):
        assert rules == 5


@pytest.mark.parametrize("mart", MARTS.values(), ids=MARTS)
def test_a_definition_names_what_it_refers_to(mart: Mart) -> None:
    columns = mart.definition.columns
    assert {*mart.grain} <= {*columns}
    assert not any(columns[name].optional for name in mart.grain)
    for column in columns.values():
        if column.refers_to:
            other, _, field = column.refers_to.partition(".")
            assert field in MARTS[other].definition.columns
            assert list(MARTS).index(other) < list(MARTS).index(mart.name), "it is built before"


def test_the_page_names_each_mart_and_column(tmp_path: Path) -> None:
    page = catalogue_page(tmp_path, tmp_path / "audit.json", datetime.now(UTC))
    assert "No audit was made yet" in page
    for mart in MARTS.values():
        assert f'id="{mart.name}"' in page
        assert all(f"<td>{name}</td>" in page for name in mart.definition.columns)


def test_a_mart_of_old_events_is_refused() -> None:
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    check_fresh(MOVES, now - timedelta(hours=24), now)
    with pytest.raises(
        Unfit, match=r"moves was not published. The lake was updated 25.0 h ago, .* 24 h behind"
    ):
        check_fresh(MOVES, now - timedelta(hours=25), now)
    with pytest.raises(Unfit, match="may be 1 h behind"):
        check_fresh(MARTS["stockouts"], now - timedelta(hours=2), now)
