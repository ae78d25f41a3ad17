"""Marts that follow the log: what an earlier output has of them stays, where new events do not change it.

Sums are added to (`ADDED`). Otherwise a mart's rows fall into parts by one of its columns (`PARTS`). The events of an
order belong to one part or several; the rows of a part follow from the events of all orders that belong to it, and from
no others. Only the parts with new events are made again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.events import Events
from analytics.marts.catalogue import Mart, Sources, Table
from analytics.marts.orders import added_revenue
from analytics.marts.stock import added_ledgers, added_states


@dataclass(frozen=True)
class Parts:
    """`key` is the column of the mart that names a row's part. `members`: entity and key, one row per part to which the
    entity belongs, made like a mart; None: the key is the entity itself. No event may take an entity out of a part."""

    key: str
    members: Table | None = None


def _days_of_conversations(
    placed: DataFrame,
    shipped: DataFrame,
    returned: DataFrame,
    rejected: DataFrame,
    cancelled: DataFrame,
    expired: DataFrame,
) -> DataFrame:
    """A conversation begins with one of these events."""
    began = (shipped, returned, rejected, cancelled, expired)
    times = [placed.select("order_id", F.col("placed_at").alias("at"))]
    times += [events.select("order_id", "at") for events in began]
    return _members(reduce(DataFrame.unionByName, times), F.to_date("at").alias("day"))


def _members(orders: DataFrame, key: Column) -> DataFrame:
    return orders.select(F.col("order_id").alias("entity"), key)


PARTS: Mapping[str, Parts] = {
    "orders": Parts("order_id"),
    "audit_orders": Parts("entity"),
    "saga_health": Parts("day", _days_of_conversations),
    "customer_skus": Parts(
        "customer_id", lambda orders: _members(orders.where("customer_id IS NOT NULL"), F.col("customer_id"))
    ),
    "stockouts": Parts("sku", lambda rejected: _members(rejected, F.explode("short").alias("sku"))),
}

ADDED: Mapping[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "daily_revenue": added_revenue,
    "stock_ledger": added_ledgers,
    "audit_stock": added_states,
}
"""The mart of all events, from that of some and that of the others."""

FOLLOWING = frozenset({*PARTS, *ADDED})
"""The other marts compare all customers or baskets with each other, or take one pass over the orders: they are made
anew, of the mart of orders."""

MOST_KEYS = 100_000  # that the driver holds


@dataclass(frozen=True)
class SomeEvents:
    """Of each type's events those that `keep` returns."""

    log: Events
    keep: Callable[[DataFrame], DataFrame]

    def of(self, type_name: str) -> DataFrame:
        return self.keep(self.log.of(type_name))


def refreshed(
    mart: Mart,
    earlier: DataFrame,
    changed: DataFrame,
    log: Events,
    find_orders: Callable[[], DataFrame] | None,
) -> DataFrame:
    """Returns the rows of a mart of PARTS as of `log`, which has grown since `earlier` by events of the entities
    `changed` (column `entity`). `find_orders` returns the mart of orders as of `log`; None to make that."""
    parts = PARTS[mart.name]
    if parts.members is None:
        touched, entities = changed.withColumnRenamed("entity", parts.key), changed
    else:
        members = Sources(log, find_orders=find_orders).build(parts.members)
        touched = computed(members.join(changed, "entity", "left_semi").select(parts.key).distinct())
        entities = computed(members.join(touched, parts.key, "left_semi").select("entity").distinct())
    made_of = Sources(SomeEvents(log, lambda events: events.join(entities, "entity", "left_semi")))
    if find_orders:
        ids = entities.withColumnRenamed("entity", "order_id")
        made_of = replace(made_of, find_orders=lambda: find_orders().join(ids, "order_id", "left_semi"))
    anew = mart.build(made_of)
    kept = earlier.join(touched, parts.key, "left_anti")
    return kept.unionByName(anew.join(touched, parts.key, "left_semi")).select(*earlier.columns)


def computed(keys: DataFrame) -> DataFrame:
    """Computes a frame of keys now, so that no plan that names it contains its own. If they are few, the driver holds
    them, and what they are joined to is not shuffled."""
    few = keys.limit(MOST_KEYS + 1).toArrow()
    if few.num_rows > MOST_KEYS:
        return keys.localCheckpoint()
    return F.broadcast(keys.sparkSession.createDataFrame(few, keys.schema))
