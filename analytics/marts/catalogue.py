"""The marts by name: the function of each, and its definition in `marts.yaml`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path

import msgspec
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from analytics import staging
from analytics.delta import Location, last_commit, table
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
    """`outgoing_commands`: the staging of inventory's commands; None where they were not read. `find_orders` returns
    the mart of orders, when it is needed; None to make it of the events."""

    events: Events
    outgoing_commands: DataFrame | None = None
    find_orders: Callable[[], DataFrame] | None = None

    @cached_property
    def orders(self) -> DataFrame:
        """The mart of orders, which others are made of: worth persisting where several are built."""
        return self.find_orders() if self.find_orders else self.build(orders)

    def build(self, table: Table) -> DataFrame:
        return table(
            *(
                getattr(self, name) if hasattr(self, name) else getattr(staging, name)(self.events)
                for name in signature(table).parameters
            )
        )


class Column(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"doc": "is", "refers_to": "in"}
):
    """`money`: micros, which are decimals where the mart is written. `one_of`: all values that there are. `refers_to`:
    `mart.column`, which has each of them."""

    doc: str
    optional: bool = False
    money: bool = False
    one_of: tuple[str | int, ...] = ()
    refers_to: str = ""


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mart in `marts.yaml`. `holds`: what is true of each row, in SQL. `fresh_hours`: how old its events may be."""

    question: str
    owner: str
    grain: tuple[str, ...]
    columns: Mapping[str, Column]
    holds: tuple[str, ...] = ()
    fresh_hours: int = 24


@dataclass(frozen=True)
class Mart:
    """`grain` names the key of `table`, which is also its order."""

    name: str
    definition: Definition
    table: Table

    @property
    def question(self) -> str:
        return self.definition.question

    @property
    def grain(self) -> tuple[str, ...]:
        return self.definition.grain

    @property
    def money(self) -> frozenset[str]:
        """The columns that are micros until the mart is written."""
        return frozenset(name for name, column in self.definition.columns.items() if column.money)

    @property
    def refers_to(self) -> frozenset[str]:
        """The other marts that have the values of its columns."""
        return frozenset(
            column.refers_to.partition(".")[0] for column in self.definition.columns.values()
        ) - {""}

    @property
    def made_of(self) -> tuple[str, ...]:
        """The frames of `staging` and the marts that it is made of."""
        return tuple(signature(self.table).parameters)

    def build(self, sources: Sources) -> DataFrame:
        return sources.build(self.table)


TABLES: Mapping[str, Table] = {
    "orders": lambda orders: orders,
    "daily_revenue": daily_revenue,
    "order_funnel": order_funnel,
    "stock_ledger": stock_ledger,
    "stockouts": stockouts,
    "customers": customers,
    "customer_cohorts": customer_cohorts,
    "guests": guests,
    "customer_skus": customer_skus,
    "basket_pairs": basket_pairs,
    "saga_health": saga_health,
    "audit_orders": lambda events: aggregates.orders(events),
    "audit_stock": lambda events: aggregates.stocks(events),
}
_DEFINITIONS = msgspec.yaml.decode(
    Path(__file__).with_name("marts.yaml").read_bytes(), type=dict[str, Definition]
)
MARTS: Mapping[str, Mart] = {name: Mart(name, _DEFINITIONS[name], table) for name, table in TABLES.items()}


def built(folder: Location, names: Iterable[str] = tuple(MARTS)) -> Mapping[str, DeltaTable]:
    """Those of these marts that were published in a folder or URI; a commit of each says what it was made of."""
    tables = ((name, table(folder, name)) for name in names)
    return {name: delta for name, delta in tables if delta and last_commit(delta)[1].get("mart") == name}
