"""What must come of a little load, in figures written by hand."""

from infra.lab.checker.oracle import Ledger
from infra.lab.retail.expectation import ExpectedDay, expect, expected_refusals
from infra.lab.retail.steps import CORRELATION
from tests.unit.retail.sheet import ALWAYS, book

LITTLE = """
    540000,A1,MUG,10,2010-12-01 09:00:00,1.00,7.0,France
    540000,A1,MUG,5,2010-12-01 09:00:00,0.90,7.0,France
    540000,POST,POSTAGE,2,2010-12-01 09:00:00,4.50,7.0,France
    540001,A2,CUP,3,2010-12-01 09:05:00,2.00,8.0,France
    540001,84880,NEVER STOCKED,1,2010-12-01 09:05:00,1.00,8.0,France
    540002,A2,CUP,6,2010-12-01 09:10:00,2.00,9.0,Spain
    C540003,A2,CUP,-6,2010-12-01 09:11:00,2.00,9.0,Spain
    540004,A2,,-1,2010-12-02 09:00:00,0.0,,France
    540005,84880,,-1,2010-12-02 09:00:00,0.0,,France
    C540006,A1,MUG,-12,2010-12-09 09:00:00,1.00,7.0,France
    540007,A2,CUP,1,2011-08-31 20:00:00,2.00,,Spain
"""


def test_orders_end_as_their_steps_say() -> None:
    orders = expect(book(LITTLE).load(ALWAYS).steps()).orders
    assert {key: order.status for key, order in orders.items()} == {
        "540000": "partly_returned",
        "540001": "rejected",
        "540002": "cancelled",
        "540007": "confirmed",
    }


def test_money_is_what_was_paid_and_the_first_line_comes_back_first() -> None:
    order = expect(book(LITTLE).load(ALWAYS).steps()).orders["540000"]
    assert (order.gross, order.refund) == (23_500_000, 11_800_000)


def test_sales_count_on_the_order_s_day_and_returns_on_their_own() -> None:
    days = expect(book(LITTLE).load(ALWAYS).steps()).days
    assert days == {
        ("2010-12-01", "France"): ExpectedDay(orders=1, units=15, gross=23_500_000, returned=0),
        ("2010-12-09", "France"): ExpectedDay(orders=0, units=0, gross=0, returned=11_800_000),
        ("2011-08-31", "Spain"): ExpectedDay(orders=1, units=1, gross=2_000_000, returned=0),
    }


def test_stock_is_what_came_less_what_left() -> None:
    stock = expect(book(LITTLE).load(ALWAYS).steps()).stock
    assert stock == {
        "A1": Ledger(received=15, adjusted=0, issued=15, returned=12),
        "A2": Ledger(received=11, adjusted=-1, reservations={"540007": 1}),
    }
    assert stock["A1"].on_hand == 12


def test_refusals_are_counted() -> None:
    assert expected_refusals(book(LITTLE).load(ALWAYS).steps()) == {"below_reserved": 1}


def test_the_audit_reads_orders_and_stock_and_who_sent_them() -> None:
    rows = list(expect(book(LITTLE).load(ALWAYS).steps()).rows())
    assert {row.pop("correlation") for row in rows} == {CORRELATION}
    assert rows == [
        {
            "kind": "orders",
            "key": "540000",
            "status": "partly_returned",
            "gross": 23_500_000,
            "refund": 11_800_000,
        },
        {"kind": "orders", "key": "540001", "status": "rejected", "gross": 7_000_000, "refund": 0},
        {"kind": "orders", "key": "540002", "status": "cancelled", "gross": 12_000_000, "refund": 0},
        {"kind": "orders", "key": "540007", "status": "confirmed", "gross": 2_000_000, "refund": 0},
        {"kind": "stock", "key": "A1", "on_hand": 12, "reserved": 0},
        {"kind": "stock", "key": "A2", "on_hand": 10, "reserved": 1},
        {"kind": "totals", "key": "commands", "count": 12},
    ]


def test_the_file_of_a_shop_without_orders_names_its_sender() -> None:
    assert list(expect([]).rows()) == [
        {"kind": "totals", "key": "commands", "correlation": CORRELATION, "count": 0}
    ]
