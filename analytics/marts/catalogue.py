"""The marts by name, each with its question and its grain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import signature

from pyspark.sql import DataFrame

from analytics import staging
from analytics.events import Events
from analytics.evidence import aggregates
from analytics.marts.customers import basket_pairs, customer_cohorts, customer_skus, customers, guests
from analytics.marts.orders import daily_revenue, order_funnel, orders, saga_health
from analytics.marts.stock import stock_ledger, stockouts

Table = Callable[..., DataFrame]
"""A mart's function. Its parameters name the frames that it is made of: functions of `staging`, or attributes of
`Sources`."""


@dataclass(frozen=True)
class Sources:
    """`outgoing_commands`: the staging of inventory's commands; None where they were not read."""

    events: Events
    outgoing_commands: DataFrame | None = None

    @cached_property
    def orders(self) -> DataFrame:
        """The mart of orders, which others are made of: worth persisting where several are built."""
        return self.build(orders)

    def build(self, table: Table) -> DataFrame:
        return table(
            *(
                getattr(self, name) if hasattr(self, name) else getattr(staging, name)(self.events)
                for name in signature(table).parameters
            )
        )


@dataclass(frozen=True)
class Mart:
    """`grain` names the key of `table`, which is also its order."""

    question: str
    grain: tuple[str, ...]
    table: Table

    def build(self, sources: Sources) -> DataFrame:
        return sources.build(self.table)


MONEY = frozenset({"gross", "net", "refund", "spent", "lost", "lost_with_orders"})


def money_columns(mart: str) -> frozenset[str]:
    """The columns of a mart that are micros."""
    return MONEY | {"returned"} if mart == "daily_revenue" else MONEY  # elsewhere, orders or units


MARTS: Mapping[str, Mart] = {
    "orders": Mart("what became of each order", ("order_id",), lambda orders: orders),
    "daily_revenue": Mart("what was sold, what came back", ("day", "country", "currency"), daily_revenue),
    "order_funnel": Mart("how far orders come, how fast", ("day",), order_funnel),
    "stock_ledger": Mart("what moved each SKU's stock", ("sku", "day"), stock_ledger),
    "stockouts": Mart("what was not sold for want of stock", ("sku", "currency"), stockouts),
    "customers": Mart("who buys: recency, frequency, money", ("customer_id", "currency"), customers),
    "customer_cohorts": Mart(
        "do customers come back", ("cohort", "months_later", "currency"), customer_cohorts
    ),
    "guests": Mart("what buyers without a name buy", ("month", "currency"), guests),
    "customer_skus": Mart("who buys what", ("customer_id", "sku", "currency"), customer_skus),
    "basket_pairs": Mart("what is bought together", ("sku_a", "sku_b"), basket_pairs),
    "saga_health": Mart("how conversations with stock end", ("day", "step", "outcome"), saga_health),
    "order_state": Mart(
        "each order's state, as the audit sees it", ("entity",), lambda events: aggregates.orders(events)
    ),
    "stock_state": Mart(
        "each SKU's state, as the audit sees it", ("entity",), lambda events: aggregates.stocks(events)
    ),
}
