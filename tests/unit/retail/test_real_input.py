"""The real nine months: the figures of docs/reference/real-input.md, and that nothing is lost on the way."""

from collections import Counter
from datetime import date

import pytest

from infra.lab.retail.expectation import expect, expected_refusals
from infra.lab.retail.invoices import Reason, SheetRow, entries, read_rows
from infra.lab.retail.plan import NEVER_STOCKED, Book, LoadPlan, Period, read_book
from infra.lab.retail.steps import Adjust, InvoiceLine, Place
from tests.unit.retail.sheet import ALWAYS

DECEMBER = Period(date(2010, 12, 1), date(2010, 12, 31), date(2010, 12, 1))


@pytest.fixture(scope="module")
def real_rows() -> list[SheetRow]:
    return list(read_rows())


@pytest.fixture(scope="module")
def real_book(real_rows: list[SheetRow]) -> Book:
    return read_book(entries(real_rows))


def test_december(real_book: Book) -> None:
    load = real_book.load(DECEMBER)
    expected = expect(load.steps())
    assert len(expected.orders) == 1552
    assert load.order_lines == 41_448
    assert Counter(order.status for order in expected.orders.values()) == {
        "shipped": 1368,
        "partly_returned": 142,
        "rejected": 36,
        "returned": 4,
        "cancelled": 2,
    }
    assert expected_refusals(load.steps()) == {"below_reserved": 1}
    assert _lines_by_reason(load) == {
        Reason.CHARGE_CREDITED: 30,
        Reason.NEVER_BOUGHT: 371,
        Reason.NO_GOODS: 7,
        Reason.GUEST_CREDIT: 23,
        Reason.ALL_RETURNED: 6,
        Reason.WAS_REJECTED: 4,
    }


def test_nine_months(real_book: Book) -> None:
    load = real_book.load(ALWAYS)
    expected = expect(load.steps())
    assert (len(expected.orders), load.order_lines, expected.commands) == (12_394, 311_892, 51_113)
    assert Counter(order.status for order in expected.orders.values()) == {
        "shipped": 10_187,
        "partly_returned": 1890,
        "rejected": 191,
        "returned": 47,
        "confirmed": 47,
        "cancelled": 32,
    }
    assert all(stock.on_hand >= stock.reserved for stock in expected.stock.values())


def test_every_row_of_goods_sold_is_a_line_of_an_order(real_rows: list[SheetRow], real_book: Book) -> None:
    placed = Counter(
        (step.order_id, line)
        for step in real_book.load(ALWAYS).steps()
        if isinstance(step, Place)
        for line in step.lines
    )
    counts = {step.number for step in real_book.adjustments if isinstance(step, Adjust)}
    sold = Counter(
        (row.invoice, InvoiceLine(row.sku, row.quantity, row.unit_price))
        for row in real_rows
        if row.quantity > 0 and row.invoice[0] not in "CA" and row.invoice not in counts
    )
    assert placed - sold == Counter()
    charges = (sold - placed).keys()
    assert {line.sku for _, line in charges} <= {
        "POST", "DOT", "M", "D", "S", "C2", "BANK CHARGES", "AMAZONFEE", "CRUK", "PADS",
        "GIFT_0001_10", "GIFT_0001_20", "GIFT_0001_30", "GIFT_0001_40", "GIFT_0001_50",
    }  # fmt: skip


def test_no_order_has_two_articles_that_are_never_stocked(real_book: Book) -> None:
    for chain in real_book.chains:
        placed = chain[0]
        assert isinstance(placed, Place)
        assert len({line.sku for line in placed.lines} & NEVER_STOCKED) <= 1


def _lines_by_reason(load: LoadPlan) -> Counter[Reason]:
    counted: Counter[Reason] = Counter()
    for gap in load.unmapped:
        counted[gap.reason] += gap.lines
    return counted
