"""Periods, deliveries, and that a plan is the same however it is cut."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from infra.lab.retail.invoices import Reason, SheetRow, entries
from infra.lab.retail.plan import Period, read_book
from infra.lab.retail.steps import Adjust, Place, Receive, Return, Step, request_of
from tests.unit.retail.sheet import ALWAYS, book

START = datetime(2010, 12, 1, 8, tzinfo=UTC)
SKUS = ("A1", "A2", "A3", "84880")

row_lists = st.lists(
    st.builds(
        SheetRow,
        invoice=st.builds("{}{}".format, st.sampled_from(["", "", "", "C"]), st.integers(540000, 540030)),
        sku=st.sampled_from((*SKUS, "POST")),
        description=st.just("X"),
        quantity=st.integers(1, 20),
        at=st.integers(0, 60 * 24 * 70).map(lambda minutes: START + timedelta(minutes=minutes)),
        unit_price=st.integers(0, 3_000_000),
        customer_id=st.sampled_from(["1", "2", None]),
        country=st.just("France"),
    ),
    max_size=60,
).map(lambda drawn: [_as_invoiced(row, drawn) for row in drawn])


def _as_invoiced(row: SheetRow, drawn: Sequence[SheetRow]) -> SheetRow:
    """An invoice has one customer, and credits are negative."""
    first = next(other for other in drawn if other.invoice == row.invoice)
    sign = -1 if row.invoice.startswith("C") else 1
    return replace(row, customer_id=first.customer_id, quantity=sign * row.quantity)


@given(row_lists, st.lists(st.dates(date(2010, 12, 1), date(2011, 3, 1)), max_size=4))
def test_periods_compose(rows: Sequence[SheetRow], cuts: Sequence[date]) -> None:
    plan = read_book(entries(rows))
    firsts = [ALWAYS.first, *sorted(set(cuts) - {ALWAYS.first})]
    lasts = [*(first - timedelta(days=1) for first in firsts[1:]), ALWAYS.last]
    parts = [plan.load(Period(a, b, ALWAYS.since)) for a, b in zip(firsts, lasts, strict=True)]
    whole = plan.load(ALWAYS)
    cut_steps = {_name(step): step for part in parts for step in part.steps()}
    assert cut_steps == {_name(step): step for step in whole.steps()}
    assert sorted(gap.at for part in parts for gap in part.unmapped) == sorted(g.at for g in whole.unmapped)


@given(row_lists)
def test_in_whatever_order_steps_arrive_stock_suffices(rows: Sequence[SheetRow]) -> None:
    """Even if every order is reserved and everything is written off before anything comes back."""
    load = read_book(entries(rows)).load(ALWAYS)
    left: Counter[str] = Counter()
    for step in load.steps():
        match step:
            case Receive(sku=sku, quantity=quantity):
                left[sku] += quantity
            case Place(lines=lines):
                for line in lines:
                    left[line.sku] -= line.quantity
            case Adjust(sku=sku, quantity=quantity) if quantity < 0:
                left[sku] += quantity
    assert all(units >= 0 for sku, units in left.items() if sku != "84880")


@given(row_lists)
def test_nobody_returns_more_than_was_bought(rows: Sequence[SheetRow]) -> None:
    load = read_book(entries(rows)).load(ALWAYS)
    for chain in load.chains:
        left: Counter[str] = Counter()
        for step in chain:
            match step:
                case Place(lines=lines):
                    left.update(dict.fromkeys(SKUS, 0))
                    for line in lines:
                        left[line.sku] += line.quantity
                case Return(lines=returned):
                    left.subtract(dict(returned))
        assert min(left.values(), default=0) >= 0
        assert [step.at for step in chain] == sorted(step.at for step in chain)


@given(row_lists)
def test_every_credited_unit_is_returned_cancelled_or_counted(rows: Sequence[SheetRow]) -> None:
    credited = sum(
        -row.quantity for row in rows if row.quantity < 0 and row.sku != "POST" and row.customer_id
    )
    priced = [replace(row, unit_price=1) for row in rows]
    load = read_book(entries(priced)).load(ALWAYS)
    mapped = 0
    for chain in load.chains:
        for step in chain[1:]:
            if isinstance(step, Return):
                mapped += sum(units for _, units in step.lines)
            elif request_of(step).kind == "cancellation":
                mapped += sum(line.quantity for line in _placed(chain[0]).lines)
    reasons = {Reason.NEVER_BOUGHT, Reason.ALL_RETURNED, Reason.WAS_REJECTED}
    assert mapped - sum(gap.value for gap in load.unmapped if gap.reason in reasons) == credited


@given(row_lists)
def test_a_plan_is_the_same_again_and_its_keys_are_distinct(rows: Sequence[SheetRow]) -> None:
    calls = [request_of(step) for step in read_book(entries(rows)).load(ALWAYS).steps()]
    assert calls == [request_of(step) for step in read_book(entries(rows)).load(ALWAYS).steps()]
    assert len({(request.path, request.key) for request in calls}) == len(calls)


def test_a_month_s_delivery_is_what_the_month_takes() -> None:
    plan = book("""
        540000,A1,MUG,10,2010-12-01 09:00:00,1.00,7.0,France
        540001,A1,MUG,3,2010-12-31 09:00:00,1.00,7.0,France
        540002,A1,,-2,2010-12-31 10:00:00,0.0,,France
        540003,A1,,9,2010-12-31 11:00:00,0.0,,France
        540004,A1,MUG,4,2011-01-03 09:00:00,1.00,7.0,France
        540005,84880,NEVER,4,2011-01-03 09:00:00,1.00,7.0,France
        540006,84880,found,4,2011-01-03 09:00:00,0.0,,France
    """)
    december, january = datetime(2010, 12, 1, tzinfo=UTC), datetime(2011, 1, 1, tzinfo=UTC)
    load = plan.load(ALWAYS)
    assert load.deliveries == (
        Receive(december, "A1", 15, "delivery-2010-12"),
        Receive(january, "A1", 4, "delivery-2011-01"),
    )
    assert [step.quantity for step in load.adjustments] == [-2, 9]
    assert [gap.reason for gap in load.unmapped] == [Reason.FOUND_BUT_NOT_STOCKED]
    one_day = plan.load(Period(date(2010, 12, 31), date(2010, 12, 31), date(2010, 12, 31)))
    assert one_day.deliveries == load.deliveries[:1], "the month's whole delivery, whichever day asks for it"


def test_a_load_that_begins_later_leaves_earlier_orders_alone_and_says_so() -> None:
    plan = book("""
        540000,A1,MUG,10,2010-12-31 09:00:00,1.00,7.0,France
        C540001,A1,MUG,-2,2011-01-20 09:00:00,1.00,7.0,France
    """)
    january = (date(2011, 1, 1), date(2011, 1, 31))
    alone = plan.load(Period(*january, since=date(2011, 1, 1)))
    assert (list(alone.steps()), [gap.value for gap in alone.unmapped]) == ([], [-2_000_000])
    assert alone.unmapped[0].reason is Reason.BEFORE_THE_LOAD
    after_december = plan.load(Period(*january, since=date(2010, 12, 1)))
    assert [request_of(step).kind for step in after_december.steps()] == ["return"]
    assert after_december.unmapped == ()


def _placed(step: Step) -> Place:
    assert isinstance(step, Place)
    return step


def _name(step: Step) -> tuple[str, str]:
    request = request_of(step)
    return request.path, request.key
