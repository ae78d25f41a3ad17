"""Compares log, read models and Spark: every order, SKU and day's sales, from accounts that share no code.

1. the log folded by the domain's own `evolve`;  2. the read models in PostgreSQL;  3. Spark SQL's aggregates;
and 4. what the sender of the commands expects, if known: the first three all come from the log, so they would
agree on a duplicate record."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from analytics.evidence import aggregates
from analytics.evidence.comparison import (
    EntityKind,
    compare_entities,
    compare_expected,
    compare_sales,
    read_expectation,
)
from analytics.evidence.domain_fold import DomainFold, Row, folded
from analytics.evidence.read_models import read_models, read_positions
from analytics.evidence.report import Verdict, aside
from analytics.log_rule import stops
from analytics.offsets import check_within, stable_ends, wait_until_read
from analytics.replay import replay
from contracts.order.events import OrderReturned
from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.order.domain.decider import order_decider
from services.order.domain.state import Order, Placed, units_of


@dataclass(frozen=True)
class AuditSources:
    """What is audited. The topics have other names where a copy of the log is audited."""

    kafka: str
    database_url: str
    orders: str = "order.events"
    inventory: str = "inventory.events"
    expectation: Path | None = None


def _observe_order(order: Order, event: Any, row: Row) -> Row:
    """Returns gross and units while the domain has them, and the refunds of its events."""
    row = {**row, "status": order_decider.status(order)}
    if isinstance(order, Placed):
        row |= {"gross": order.gross, "units": units_of(order.lines)}
    if isinstance(event, OrderReturned):
        row["refund"] += event.refund
    return row


def _observe_stock(stock: Stock, _event: Any, _row: Row) -> Row:
    return {"on_hand": stock.on_hand, "reserved": stock.reserved}


ORDER = DomainFold(
    "daybook.order.",
    order_decider,
    _observe_order,
    {"status": "unknown", "gross": 0, "refund": 0, "units": 0},
    "status string, gross bigint, refund bigint, units bigint",
)
STOCK = DomainFold(
    "daybook.inventory.",
    stock_decider,
    _observe_stock,
    {"on_hand": 0, "reserved": 0},
    "on_hand bigint, reserved bigint",
)

KINDS = (
    EntityKind("orders", ORDER, aggregates.orders, aggregates.ORDER_FIELDS, ("gross", "refund")),
    EntityKind("stock", STOCK, aggregates.stocks, aggregates.STOCK_FIELDS, ("on_hand", "reserved")),
)


def audit(
    session: SparkSession, sources: AuditSources, wait_seconds: float, report: Callable[[str], None]
) -> Verdict:
    """Compares everything up to the read models' positions, after they have read what is committed now. `report`
    receives each step. Raises LogUnreachable, DatabaseUnreachable, ReplayIncomplete, AheadOfLog and BadExpectation."""
    started = time.monotonic()
    expected = read_expectation(session, sources.expectation) if sources.expectation else None
    _wait_until_caught_up(sources, wait_seconds, report)
    with read_models(session, sources.database_url) as models:
        ends = stable_ends(sources.kafka, (sources.orders, sources.inventory))
        check_within(ends, models.positions)
        report("reading the log")
        log = replay(session, sources.kafka, ends=ends, kept=True)
        count = log.events.count()
        compared, by_domain = [], {}
        for kind in KINDS:
            report(f"folding {kind.name} with the domain and with SQL")
            read = log.before(models.positions[kind.name])
            by_domain[kind.name] = folded(read, kind.fold).persist()
            compared.append(compare_entities(read, kind, by_domain[kind.name], models.rows[kind.name]))
        report("comparing sales")
        read = log.before(models.positions["sales_daily"])
        sales, revenue = compare_sales(read, models.rows["sales_daily"])
        compared.append(sales)
        if expected is not None:
            report("comparing with what was expected")
            for kind in KINDS:
                read = log.before(models.positions[kind.name])
                events = read.events.where(F.col("type").startswith(kind.fold.types))
                compared.append(compare_expected(expected, kind.name, by_domain[kind.name], events))
        for kept in (log, *by_domain.values()):
            kept.unpersist()
        comparisons = [comparison for comparison, _ in compared]
        differences = [difference for _, differing in compared for difference in differing]
        stopped = {(row["topic"], row["entity"]) for row in stops(log.exceptions).to_pylist()}
        parked = sum(count for key, count in models.parked.items() if key not in stopped)
        seconds = round(time.monotonic() - started, 1)
        return Verdict(
            log.ends, count, comparisons, differences, aside(log.exceptions), parked, revenue, seconds
        )


def _wait_until_caught_up(sources: AuditSources, seconds: float, report: Callable[[str], None]) -> None:
    """Returns once each read model has read what the log contains now."""
    ends = stable_ends(sources.kafka, (sources.orders, sources.inventory))
    deadline = time.monotonic() + seconds
    topics = {"orders": sources.orders, "stock": sources.inventory, "sales_daily": sources.orders}
    for name, topic in topics.items():
        report(f"waiting until {name} has read the log")
        wait_until_read(
            sources.kafka,
            {topic: ends[topic]},
            lambda name=name: read_positions(sources.database_url)[name],  # type: ignore[misc]
            max(deadline - time.monotonic(), 0),
        )
