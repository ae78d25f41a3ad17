"""Loads that compose: what is known, what is expected, what is not sent again."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from infra.lab.retail.expectation import expect
from infra.lab.retail.load_history import (
    Loaded,
    loaded_since,
    read_loaded,
    record_loaded,
    steps_of,
    without_expired,
)
from infra.lab.retail.plan import Period
from infra.lab.retail.steps import request_of
from tests.unit.retail.sheet import ALWAYS, book

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TWO_MONTHS = """
    540000,A1,MUG,10,2010-12-31 09:00:00,1.00,7.0,France
    C540001,A1,MUG,-2,2011-01-20 09:00:00,1.00,7.0,France
    540002,A1,MUG,1,2011-01-21 09:00:00,1.00,7.0,France
"""


def month(number: int, since: int) -> Period:
    year = 2010 if number == 12 else 2011
    return Period(
        date(year, number, 1), date(year, number, 31), date(2010 if since == 12 else 2011, since, 1)
    )


def test_nothing_is_loaded_at_first(tmp_path: Path) -> None:
    assert read_loaded(tmp_path / "new") == []


def test_loads_are_remembered_once_with_their_first_time(tmp_path: Path) -> None:
    record_loaded(tmp_path / "new", month(12, 12), NOW)
    record_loaded(tmp_path / "new", month(1, 12), NOW)
    record_loaded(tmp_path / "new", month(12, 12), NOW + timedelta(days=1))
    assert read_loaded(tmp_path / "new") == [Loaded(month(12, 12), NOW), Loaded(month(1, 12), NOW)]


def test_orders_are_loaded_since_the_first_day_without_a_gap() -> None:
    loaded = [Loaded(month(12, 12), NOW)]
    assert loaded_since(date(2011, 1, 1), loaded) == date(2010, 12, 1)
    assert loaded_since(date(2010, 12, 10), loaded) == date(2010, 12, 1)
    assert loaded_since(date(2011, 1, 2), loaded) == date(2011, 1, 2)


def test_months_in_whatever_order_expect_the_same_as_both_together() -> None:
    plan = book(TWO_MONTHS)
    backwards = [month(1, 1), month(12, 12), month(1, 12)]
    assert Counter(steps_of(plan, backwards)) == Counter(plan.load(ALWAYS).steps())
    assert expect(steps_of(plan, backwards)) == expect(plan.load(ALWAYS).steps())


def test_what_the_shop_may_have_forgotten_is_not_sent_again() -> None:
    plan = book(TWO_MONTHS)
    whole = plan.load(ALWAYS)
    young = without_expired(plan, whole, [Loaded(month(12, 12), NOW - timedelta(hours=19))], NOW)
    assert young == whole
    old = without_expired(plan, whole, [Loaded(month(12, 12), NOW - timedelta(hours=21))], NOW)
    assert [request_of(step).key for step in old.steps()] == [
        "delivery-2011-01",
        "return-C540001",
        "order-540002",
        "shipment",
    ]
