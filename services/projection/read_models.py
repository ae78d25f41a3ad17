"""The read models of the shop. To add one: a folder with project, store, queries, schema, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.kernel.envelope import Envelope
from services.kernel.read_model import ReadModel, Row, Store
from services.projection.conversations.project import project as project_conversation
from services.projection.conversations.store import ConversationStore
from services.projection.order_history.project import project as project_history
from services.projection.order_history.store import HistoryStore
from services.projection.orders.project import project as project_order
from services.projection.orders.store import OrderStore
from services.projection.sales_daily.project import project as project_sales
from services.projection.sales_daily.store import SalesStore
from services.projection.stock.project import project as project_stock
from services.projection.stock.store import StockStore


def _of_orders(
    name: str, project: Callable[[Row | None, Envelope[Any]], Row], store: Callable[[str], Store[Row]]
) -> ReadModel[Row]:
    return ReadModel(name, ("order.events",), "order", project, store, _ddl(name))


def _of_stock(
    name: str, project: Callable[[Row | None, Envelope[Any]], Row], store: Callable[[str], Store[Row]]
) -> ReadModel[Row]:
    return ReadModel(name, ("inventory.events",), "stock", project, store, _ddl(name))


def _ddl(name: str) -> str:
    return (Path(__file__).parent / name / "schema.sql").read_text("utf-8")


ORDERS = _of_orders("orders", project_order, OrderStore)
ORDER_HISTORY = _of_orders("order_history", project_history, HistoryStore)
SALES_DAILY = _of_orders("sales_daily", project_sales, SalesStore)
CONVERSATIONS = _of_orders("conversations", project_conversation, ConversationStore)
STOCK = _of_stock("stock", project_stock, StockStore)

READ_MODELS: tuple[ReadModel[Any], ...] = (ORDERS, ORDER_HISTORY, SALES_DAILY, CONVERSATIONS, STOCK)
