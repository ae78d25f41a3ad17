"""The read models of the shop. Each is a folder (fold.py, store.py, api.py, schema.sql) and one line here."""

from importlib import import_module
from importlib.resources import files
from typing import Any

from services.kernel.log.rule import STREAMS
from services.projection.engine.fingerprint import fingerprint
from services.projection.engine.read_model import ReadModel


def read_model(name: str, topic: str) -> ReadModel[Any]:
    """Returns the read model of the folder `name`: `fold` of fold.py, `STORE` of store.py, the tables of schema.sql.
    The name is also its schema in PostgreSQL, and its label in metrics, positions and commands."""
    package = f"{__package__}.{name}"
    fold, store = (import_module(f"{package}.{module}") for module in ("fold", "store"))
    ddl = files(package).joinpath("schema.sql").read_text("utf-8")
    return ReadModel(name, (topic,), STREAMS[topic], fold.fold, store.STORE, ddl, fingerprint(package))


READ_MODELS: tuple[ReadModel[Any], ...] = (
    ORDERS := read_model("orders", "order.events"),
    ORDER_HISTORY := read_model("order_history", "order.events"),
    SALES_DAILY := read_model("sales_daily", "order.events"),
    CONVERSATIONS := read_model("conversations", "order.events"),
    STOCK := read_model("stock", "inventory.events"),
)
