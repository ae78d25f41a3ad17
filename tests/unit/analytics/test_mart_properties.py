"""What holds for every shop: many generated shops in one Spark job, told apart by SKU or currency."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.marts.customers import customer_cohorts, customers, guests
from analytics.marts.orders import daily_revenue, order_funnel, orders
from analytics.marts.stock import stock_ledger
from tests.unit.analytics.shop_frames import DAY, HOUR, MONDAY, Life, life_frames

# Each example holds many cases, so few are needed; shrinking them would be many jobs.
FEW = settings(max_examples=2, deadline=None, phases=(Phase.explicit, Phase.generate))
FATES = ("placed", "rejected", "cancelled", "confirmed", "undone", "expired", "shipped", "part", "whole")
KINDS = ("received", "returned", "adjusted", "issued", "reserved", "released")
MONEY = st.integers(0, 10**12)

movements = st.tuples(
    st.sampled_from([f"S{number}" for number in range(40)]),
    st.sampled_from(KINDS),
    st.integers(-50, 50),
    st.integers(0, 9).map(lambda days: MONDAY + days * DAY),
)
lives = st.builds(
    Life,
    order_id=st.just(""),
    fate=st.sampled_from(FATES),
    customer_id=st.sampled_from([None, "c-1", "c-2", "c-3"]),
    currency=st.integers(0, 19).map(lambda number: f"C{number}"),
    units=st.integers(1, 1_000),
    gross=MONEY,
    refund=MONEY,
    placed_at=st.integers(0, 70).map(lambda days: MONDAY + days * DAY),
    shipped_after=st.integers(0, 90).map(lambda hours: hours * HOUR),
)


def numbered(drawn: list[Life]) -> list[Life]:
    return [Life(**{**vars(life), "order_id": f"o-{number}"}) for number, life in enumerate(drawn)]


@FEW
@given(st.lists(movements, min_size=200, max_size=400))
def test_every_ledger_closes(spark: SparkSession, moved: list[tuple[str, str, int, Any]]) -> None:
    frame = spark.createDataFrame(moved, "sku string, kind string, quantity int, occurred_at timestamp")
    rows: defaultdict[str, list[Any]] = defaultdict(list)
    for row in stock_ledger(frame).orderBy("sku", "day").collect():
        rows[row["sku"]].append(row)
    held: Counter[str] = Counter()
    for sku, kind, quantity, _ in moved:
        signs = {"issued": -1, "reserved": 0, "released": 0}
        held[sku] += signs.get(kind, 1) * quantity
    for sku, days in rows.items():
        assert days[0]["opening"] == 0
        assert all(before["closing"] == after["opening"] for before, after in pairwise(days))
        assert days[-1]["closing"] == held[sku]
    assert rows.keys() == {sku for sku, *_ in moved}


@FEW
@given(st.lists(lives, min_size=100, max_size=250))
def test_every_funnel_narrows(spark: SparkSession, drawn: list[Life]) -> None:
    generated = numbered(drawn)
    days = order_funnel(orders(**life_frames(spark, generated))).collect()
    for day in days:
        assert day["placed"] >= day["confirmed"] >= day["shipped"] >= day["returned"]
        assert day["placed"] >= day["confirmed"] + day["rejected"] + day["expired"]
        for name in ("confirming_seconds", "shipping_hours", "returning_days"):
            if day[f"{name}_p50"] is not None:
                assert 0 <= day[f"{name}_p50"] <= day[f"{name}_p95"]
    assert sum(day["placed"] for day in days) == len(generated)
    assert sum(day["confirmed"] for day in days) == sum(life.confirmed for life in generated)


@FEW
@given(st.lists(lives, min_size=100, max_size=250))
def test_money_is_the_same_in_every_mart(spark: SparkSession, drawn: list[Life]) -> None:
    generated = numbered(drawn)
    expected: Counter[str] = Counter()
    for life in generated:
        if life.confirmed and life.fate != "undone":
            expected[life.currency] += life.gross - life.refund * (life.fate in ("part", "whole"))
    frames = life_frames(spark, generated)
    everything = orders(**frames).persist()
    by_day = net(daily_revenue(frames["confirmed"], frames["cancelled"], frames["returned"]))
    of_guests, of_customers = net(guests(everything)), net(customers(everything))
    of_cohorts = net(customer_cohorts(everything))
    everything.unpersist()
    for currency in {life.currency for life in generated}:
        assert by_day[currency] == expected[currency]
        assert of_guests[currency] + of_customers[currency] == expected[currency]
        assert of_cohorts[currency] == of_customers[currency]


def net(mart: DataFrame) -> Counter[str]:
    by_currency = mart.groupBy("currency").agg(F.sum("net").alias("net"))
    return Counter({row["currency"]: row["net"] for row in by_currency.collect()})
