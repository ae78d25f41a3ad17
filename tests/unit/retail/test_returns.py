"""Which order a credit note is about."""

from datetime import UTC, datetime, timedelta

from infra.lab.retail.invoices import Reason
from infra.lab.retail.plan import lead_time
from infra.lab.retail.steps import Cancel, Chain, Place, Return, Ship
from tests.unit.retail.sheet import ALWAYS, book

TWO_ORDERS = """
    540000,A1,MUG,10,2010-12-01 09:00:00,1.00,7.0,France
    540000,A2,CUP,5,2010-12-01 09:00:00,2.00,7.0,France
    540045,A1,MUG,4,2010-12-05 09:00:00,1.10,7.0,France
    540090,A1,MUG,99,2010-12-05 10:00:00,1.00,8.0,France
"""


def later(chain: Chain) -> list[str]:
    return [type(step).__name__ for step in chain[1:]]


def test_the_newest_order_takes_back_first_then_the_one_before() -> None:
    plan = book(TWO_ORDERS + "C540500,A1,MUG,-6,2010-12-20 09:00:00,1.00,7.0,France")
    older, newer, other = plan.chains
    at = datetime(2010, 12, 20, 9, tzinfo=UTC)
    assert newer[-1] == Return(at, "540045", "C540500", (("A1", 4),))
    assert older[-1] == Return(at, "540000", "C540500", (("A1", 2),))
    assert later(other) == ["Ship"]
    assert plan.unmapped == ()


def test_several_articles_of_one_order_come_back_together_and_once() -> None:
    plan = book(
        TWO_ORDERS
        + """
        C540500,A2,CUP,-1,2010-12-03 10:00:00,2.00,7.0,France
        C540500,A1,MUG,-1,2010-12-03 10:00:00,1.00,7.0,France
        C540500,A1,MUG,-1,2010-12-03 10:00:00,1.00,7.0,France
        """
    )
    returned = plan.chains[0][-1]
    assert isinstance(returned, Return)
    assert returned.lines == (("A2", 1), ("A1", 2))


def test_more_than_was_bought_is_left_over_with_its_reason() -> None:
    plan = book(TWO_ORDERS + "C540500,A2,CUP,-7,2010-12-20 09:00:00,2.00,7.0,France")
    [gap] = plan.unmapped
    assert (gap.reason, gap.value) == (Reason.ALL_RETURNED, -4_000_000)


def test_what_was_bought_by_somebody_else_or_later_is_never_bought() -> None:
    plan = book("C540500,A1,MUG,-1,2010-12-01 08:00:00,1.00,7.0,France\n" + TWO_ORDERS.strip())
    assert [gap.reason for gap in plan.unmapped] == [Reason.NEVER_BOUGHT]


def test_a_rejected_order_takes_nothing_back_and_is_not_shipped() -> None:
    plan = book("""
        540000,A1,MUG,1,2010-12-01 09:00:00,1.00,7.0,France
        540000,84880,NEVER STOCKED,1,2010-12-01 09:00:00,1.00,7.0,France
        C540500,A1,MUG,-1,2010-12-20 09:00:00,1.00,7.0,France
    """)
    assert later(plan.chains[0]) == []
    assert [gap.reason for gap in plan.unmapped] == [Reason.WAS_REJECTED]


def test_a_credit_of_the_whole_order_before_it_leaves_cancels_it() -> None:
    plan = book("""
        540000,A1,MUG,10,2010-12-01 09:00:00,1.00,7.0,France
        540000,A2,CUP,5,2010-12-01 09:00:00,2.00,7.0,France
        C540001,A2,CUP,-5,2010-12-01 09:30:00,2.00,7.0,France
        C540001,A1,MUG,-10,2010-12-01 09:30:00,1.00,7.0,France
    """)
    [chain] = plan.chains
    assert chain[1:] == (Cancel(datetime(2010, 12, 1, 9, 30, tzinfo=UTC), "540000", "C540001"),)


def test_the_same_credit_after_it_left_is_a_return_of_everything() -> None:
    plan = book("""
        540000,A1,MUG,10,2010-12-01 09:00:00,1.00,7.0,France
        C540001,A1,MUG,-10,2010-12-04 09:00:00,1.00,7.0,France
    """)
    assert later(plan.chains[0]) == ["Ship", "Return"]


def test_an_order_of_which_a_part_came_back_early_had_left_by_then() -> None:
    plan = book("""
        540000,A1,MUG,10,2010-12-01 09:00:00,1.00,7.0,France
        C540001,A1,MUG,-1,2010-12-01 10:00:00,1.00,7.0,France
    """)
    placed, ship, returned = plan.chains[0]
    assert isinstance(placed, Place)
    assert isinstance(ship, Ship)
    assert placed.at < ship.at == returned.at


def test_orders_are_shipped_four_to_forty_eight_hours_later() -> None:
    assert lead_time("540000") == timedelta(hours=4)
    assert lead_time("540044") == timedelta(hours=48)
    [chain] = book("540000,A1,MUG,10,2010-12-01 09:00:00,1.00,,France").load(ALWAYS).chains
    assert chain[1] == Ship(datetime(2010, 12, 1, 13, tzinfo=UTC), "540000")
