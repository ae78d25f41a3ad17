"""A release is a release, in every version of its schema and whether or not its order was lost."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from analytics.audit import STOCK
from analytics.evidence import aggregates
from analytics.evidence.domain_fold import folded
from analytics.log_rule import NOTHING_FOUND, with_fault
from analytics.marts.stock import stock_ledger
from analytics.replay import Replay
from analytics.staging import movements
from contracts.inventory.events import StockReceived, StockReleased, StockReserved
from contracts.lock import load_lock
from tests.integration.analytics.log_writer import framed
from tests.unit.analytics.log_columns import LOG_COLUMNS

AT = datetime(2011, 3, 7, 9, tzinfo=UTC)
MICROS = int(AT.timestamp()) * 1_000_000
RECEIVED, RESERVED = load_lock().ids(StockReceived.TYPE)[-1], load_lock().ids(StockReserved.TYPE)[-1]
OLDER, NEWER = load_lock().ids(StockReleased.TYPE)
WHO = {"sku": "A", "occurred_at": MICROS}
HELD = {**WHO, "order_id": "o-1", "quantity": 3}
EVENTS = [
    (RECEIVED, {**WHO, "quantity": 10, "reference": "opening"}),
    (RESERVED, HELD),
    (OLDER, HELD),
    (RESERVED, {**HELD, "order_id": "o-2"}),
    (NEWER, {**HELD, "order_id": "o-2", "order_lost": False}),
    (RESERVED, {**HELD, "order_id": "o-3"}),
    (NEWER, {**HELD, "order_id": "o-3", "order_lost": True}),
    (RESERVED, {**HELD, "order_id": "o-3", "quantity": 2}),  # the lost order is placed again
]


@pytest.fixture
def log(spark: SparkSession) -> Replay:
    lock = load_lock()
    rows = []
    for version, (schema_id, record) in enumerate(EVENTS, start=1):
        envelope = ("A", f"id-{version}", lock.type_of(schema_id), version, AT, "corr", "cause", 1, schema_id)
        rows.append(("inventory.events", 0, version - 1, *envelope, framed(schema_id, record)))
    frame = spark.createDataFrame(rows, StructType.fromDDL(LOG_COLUMNS))
    return Replay({}, with_fault(frame, NOTHING_FOUND), lock)


def test_the_ledger_counts_every_release(log: Replay) -> None:
    (day,) = stock_ledger(movements(log)).collect()
    assert (day["reserved"], day["released"], day["held"], day["closing"]) == (11, 9, 2, 10)


def test_the_accounts_of_the_audit_agree_on_every_prefix(log: Replay) -> None:
    fields = ("version", "on_hand", "reserved")
    sql, fold = aggregates.stocks(log, every_version=True), folded(log, STOCK, every_version=True)
    expected = [(version, 10, held) for version, held in enumerate((0, 3, 0, 3, 0, 3, 0, 2), start=1)]
    assert sorted(tuple(row) for row in sql.select(*fields).collect()) == expected
    assert sorted(tuple(row) for row in fold.where("broken_at IS NULL").select(*fields).collect()) == expected
