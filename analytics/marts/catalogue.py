"""The marts by name, and what of the log each is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from analytics.events import Events
from analytics.evidence import aggregates
from analytics.marts.basket_pairs import basket_pairs
from analytics.marts.customer_cohorts import customer_cohorts
from analytics.marts.customer_skus import customer_skus
from analytics.marts.customers import customers
from analytics.marts.daily_revenue import daily_revenue
from analytics.marts.guests import guests
from analytics.marts.order_funnel import order_funnel
from analytics.marts.orders import orders
from analytics.marts.saga_health import saga_health
from analytics.marts.stock_ledger import stock_ledger
from analytics.marts.stockouts import stockouts
from analytics.staging import conversations, stock
from analytics.staging import orders as staged


@dataclass(frozen=True)
class Sources:
    """`outgoing_commands`: the staging of inventory's commands; None where they were not read."""

    events: Events
    outgoing_commands: DataFrame | None = None

    @cached_property
    def orders(self) -> DataFrame:
        """The mart of orders, which others are made of: worth persisting where several are built."""
        log = self.events
        return orders(
            staged.placed(log),
            staged.confirmed(log),
            staged.rejected(log),
            staged.cancelled(log),
            staged.expired(log),
            staged.shipped(log),
            staged.returned(log),
        )


@dataclass(frozen=True)
class Mart:
    """`grain` names its key, which is also its order."""

    question: str
    grain: tuple[str, ...]
    build: Callable[[Sources], DataFrame]


def _daily_revenue(sources: Sources) -> DataFrame:
    log = sources.events
    return daily_revenue(staged.confirmed(log), staged.cancelled(log), staged.returned(log))


def _stockouts(sources: Sources) -> DataFrame:
    return stockouts(staged.rejected(sources.events), staged.lines(sources.events), sources.orders)


def _customer_skus(sources: Sources) -> DataFrame:
    log = sources.events
    return customer_skus(sources.orders, staged.lines(log), staged.refunded_lines(log))


MARTS: Mapping[str, Mart] = {
    "orders": Mart("what became of each order", ("order_id",), lambda sources: sources.orders),
    "daily_revenue": Mart("what was sold, what came back", ("day", "country", "currency"), _daily_revenue),
    "order_funnel": Mart(
        "how far orders come, how fast", ("day",), lambda sources: order_funnel(sources.orders)
    ),
    "stock_ledger": Mart(
        "what moved each SKU's stock",
        ("sku", "day"),
        lambda sources: stock_ledger(stock.movements(sources.events)),
    ),
    "stockouts": Mart("what was not sold for want of stock", ("sku", "currency"), _stockouts),
    "customers": Mart(
        "who buys: recency, frequency, money",
        ("customer_id", "currency"),
        lambda sources: customers(sources.orders),
    ),
    "customer_cohorts": Mart(
        "do customers come back",
        ("cohort", "months_later", "currency"),
        lambda sources: customer_cohorts(sources.orders),
    ),
    "guests": Mart(
        "what buyers without a name buy", ("month", "currency"), lambda sources: guests(sources.orders)
    ),
    "customer_skus": Mart("who buys what", ("customer_id", "sku", "currency"), _customer_skus),
    "basket_pairs": Mart(
        "what is bought together",
        ("sku_a", "sku_b"),
        lambda sources: basket_pairs(sources.orders, staged.lines(sources.events)),
    ),
    "saga_health": Mart(
        "how conversations with stock end",
        ("day", "step", "outcome"),
        lambda sources: saga_health(
            conversations.conversation_events(sources.events), sources.outgoing_commands
        ),
    ),
    "order_state": Mart(
        "each order's state, as the audit sees it",
        ("entity",),
        lambda sources: aggregates.orders(sources.events),
    ),
    "stock_state": Mart(
        "each SKU's state, as the audit sees it",
        ("entity",),
        lambda sources: aggregates.stocks(sources.events),
    ),
}
