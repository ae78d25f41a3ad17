"""Rows are exact: money, ids and times as the data has them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.lab.retail.invoices import UnreadableRow, to_micros
from services.edge.requests import decimal_text
from tests.unit.retail.sheet import rows


def test_a_row_is_typed() -> None:
    [row] = rows("536365,85123a,WHITE HEART ,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom")
    assert (row.invoice, row.sku, row.description, row.quantity) == ("536365", "85123A", "WHITE HEART", 6)
    assert row.at == datetime(2010, 12, 1, 8, 26, tzinfo=UTC)
    assert (row.unit_price, row.customer_id, row.country) == (2_550_000, "17850", "United Kingdom")


def test_a_guest_has_no_customer_id() -> None:
    [row] = rows("536544,21773,BATHROOM SET,1,2010-12-01 14:32:00,2.51,,United Kingdom")
    assert row.customer_id is None


@pytest.mark.parametrize(
    "line",
    [
        "536365,85123A,X,six,2010-12-01 08:26:00,2.55,17850.0,United Kingdom",
        "536365,85123A,X,6,2010-12-01 08:26:00,0.0000001,17850.0,United Kingdom",
        "536365,85123A,X,6,yesterday,2.55,17850.0,United Kingdom",
    ],
)
def test_an_unreadable_row_names_its_invoice(line: str) -> None:
    with pytest.raises(UnreadableRow, match="536365"):
        rows(line)


@pytest.mark.parametrize(
    ("text", "micros"), [("2.55", 2_550_000), ("0.001", 1_000), ("-11062.06", -11_062_060_000), ("0.0", 0)]
)
def test_money_is_exact(text: str, micros: int) -> None:
    assert to_micros(text) == micros


@given(st.integers(-(10**15), 10**15))
def test_a_decimal_is_read_back_as_the_same_micros(micros: int) -> None:
    text = decimal_text(micros)
    assert to_micros(text) == micros
    assert len(text.partition(".")[2]) >= 2
