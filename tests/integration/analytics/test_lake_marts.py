"""Marts that follow the lake equal marts that are made of the whole lake."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from analytics.delta import Location
from analytics.envelope import POSITION
from analytics.events import BrokenStream
from analytics.jobs import lake_marts, outputs
from analytics.jobs.lake_marts import LakeMarts
from analytics.jobs.marts import Selection, publish
from analytics.jobs.outputs import OutputReading, read_earlier
from analytics.lake.reader import open_lake
from analytics.lake.tables import copy_of, read_commits, read_exceptions
from analytics.lake.writer import update
from analytics.log_rule import EXCEPTION
from analytics.marts.catalogue import MARTS, Mart, Sources
from analytics.marts.increments import FOLLOWING
from analytics.money import with_decimals
from infra.base.waiting import wait_until
from tests.integration.analytics.growing_shop import GrowingShop
from tests.integration.analytics.log_writer import Topics, write_raw, writer
from tests.integration.analytics.test_lake import no_progress

pytestmark = pytest.mark.long

FEW = ("orders", "daily_revenue", "customer_skus")
FOLLOWING_JOB = """
from analytics.jobs import arguments, lake_marts, marts
lake_marts.FOLLOW_FROM = 0
arguments.run_job(marts.make)
"""


class Shop:
    """A shop whose lake and marts a test brings up to date."""

    def __init__(self, spark: SparkSession, kafka: str, topics: Topics, lake: Path, out: Path) -> None:
        self.spark, self.kafka, self.topics, self.lake, self.out = spark, kafka, topics, lake, out
        self.log = GrowingShop(kafka, topics, seed=7)

    def copy(self) -> None:
        update(self.spark, self.kafka, self.lake, no_progress, (self.topics.orders, self.topics.inventory))

    def publish(self, *names: str) -> None:
        publish(self.spark, names, Selection(self.kafka, self.lake), read_commits(self.lake), self.out)

    def kept(self, *names: str) -> list[str]:
        """The marts of which the next run keeps rows."""
        log = open_lake(self.spark, self.lake)
        nothing = OutputReading(source="lake", ends={})
        ready = LakeMarts(self.spark, self.lake, read_commits(self.lake), log, self.out, nothing)
        return [name for name in names if name in FOLLOWING and ready.base(name)]

    def check(self, *names: str) -> None:
        """Each mart's rows are those of the whole lake, in the order of its grain."""
        whole = Sources(open_lake(self.spark, self.lake))
        whole.orders.persist()
        for name in names:
            mart = MARTS[name]
            made = with_decimals(mart.build(whole), mart.money)
            rows = made.sort(*mart.grain).toArrow().to_pylist()
            assert rows, f"{name} has rows"
            assert self.rows(name) == rows, name
        whole.orders.unpersist()

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(self.out / name).to_pyarrow_table().to_pylist()
        return rows


@pytest.fixture
def shop(
    spark: SparkSession,
    kafka: str,
    topics: Topics,
    lake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    """Its marts follow, as those of a large lake."""
    monkeypatch.setattr(lake_marts, "FOLLOW_FROM", 0)
    shop = Shop(spark, kafka, topics, lake, tmp_path / "marts")
    shop.log.grow(orders=60, events=300)
    shop.copy()
    return shop


@pytest.mark.full
def test_what_has_not_changed_is_kept(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def write(rows: DataFrame, mart: Mart, reading: OutputReading, folder: Location) -> None:
        written.append(mart.name)
        outputs.write(rows, mart, reading, folder)

    monkeypatch.setattr(lake_marts, "write", write)
    shop.publish(*FEW)
    shop.check(*FEW)
    assert written == [*FEW], "also the orders, which others are made of, once"
    shop.log.grow(orders=5, events=60)
    shop.copy()
    assert shop.kept(*FEW) == [*FEW]
    shop.publish(*FEW)
    shop.check(*FEW)
    assert written == [*FEW, *FEW]
    # A foreign record behind the earlier end changes nothing before it.
    with writer(shop.kafka) as producer:
        producer.begin_transaction()
        write_raw(producer, shop.topics.orders, "o-1", b"poison", None)
        producer.commit_transaction(30)
    shop.copy()
    assert shop.kept(*FEW) == [*FEW]
    monkeypatch.setattr(lake_marts, "FOLLOW_FROM", 10**6)
    monkeypatch.setattr(lake_marts, "refreshed", None)  # marts of so few records are made anew
    shop.publish(*FEW)
    shop.check(*FEW)
    monkeypatch.setattr(lake_marts, "code_fingerprint", lambda: "other code")
    assert shop.kept(*FEW) == [], "other code would not have made these rows"


def test_a_changed_verdict_on_an_earlier_record_makes_everything_anew(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish("orders")
    shop.log.grow(orders=1, events=1)
    shop.copy()
    assert shop.kept("orders") == ["orders"]
    read = read_exceptions
    earlier = read_commits(shop.lake)[0]

    def another(folder: Path, commit: Any) -> Any:
        exceptions = read(folder, commit)
        row = {"topic": shop.topics.orders, "partition": 0, "offset": 0, "entity": "o-1", "what": "forked"}
        stopped = pa.Table.from_pylist([row], EXCEPTION)
        return pa.concat_tables((exceptions, stopped)) if commit == earlier else exceptions

    monkeypatch.setattr(lake_marts, "read_exceptions", another)
    assert shop.kept("orders") == [], "o-1 had stopped, and counts now"


def test_a_table_with_a_row_twice_or_never_makes_no_mart(shop: Shop) -> None:
    shop.publish("orders")
    placed = f"{copy_of(shop.lake, read_commits(shop.lake)[-1].log)}/order_placed"
    rows = DeltaTable(placed).to_pyarrow_table()
    first, count = rows.slice(0, 1), rows.num_rows
    write_deltalake(placed, first, mode="append")
    with pytest.raises(BrokenStream, match=f"order_placed has {count + 1} rows, and events_raw {count} rec"):
        shop.publish("orders")
    lost = " AND ".join(f"{name} = {first[name][0].as_py()!r}" for name in POSITION)
    cut = Selection(shop.kafka, shop.lake, known_by=read_commits(shop.lake)[-1].time)
    with pytest.raises(BrokenStream, match=f"order_placed has {count + 1} rows"):
        publish(shop.spark, ["orders"], cut, [], shop.out)
    DeltaTable(placed).delete(lost)
    with pytest.raises(BrokenStream, match=f"order_placed has {count - 1} rows"):
        shop.publish("orders")


@pytest.mark.full
def test_a_lake_that_was_made_anew_has_other_records_perhaps(shop: Shop) -> None:
    shop.publish("orders")
    assert shop.kept("orders") == ["orders"]
    rmtree(shop.lake)
    shop.copy()
    assert shop.kept("orders") == [], "an operator may have decided since, without a new event"


@pytest.mark.full
@pytest.mark.timeout(900)  # thirteen marts, several times, whole and in parts
def test_every_mart_follows_with_kills_between(shop: Shop, spark_environment: Mapping[str, str]) -> None:
    names = list(MARTS)
    shop.publish(*names)
    shop.check(*names)
    shop.log.grow(orders=10, events=120)
    shop.copy()
    assert shop.kept(*names) == [name for name in names if name in FOLLOWING]
    shop.publish(*names)
    shop.check(*names)
    _leaves_alone(shop, names)
    shop.log.grow(orders=10, events=200)
    shop.copy()
    _killed(shop, "stock_ledger", spark_environment)
    shop.log.grow(orders=10, events=200)
    shop.copy()
    shop.publish(*reversed(names))
    shop.check(*names)


def _leaves_alone(shop: Shop, names: list[str]) -> None:
    """A run without a new event writes nothing."""
    files = {file: file.stat().st_ino for file in shop.out.rglob("*")}
    shop.publish(*names)
    assert {file: file.stat().st_ino for file in shop.out.rglob("*")} == files


def _killed(shop: Shop, mart: str, environment: Mapping[str, str]) -> None:
    """Runs the job until it has replaced this mart, and kills it in the middle of the next."""
    before = read_earlier(shop.out, mart).updated
    where = ("--from", "lake", "--lake", str(shop.lake), "--out", str(shop.out))
    job = subprocess.Popen(
        [sys.executable, "-c", FOLLOWING_JOB, *where],
        env={**os.environ, **environment, "DAYBOOK_KAFKA": shop.kafka, "DAYBOOK_SPARK_MASTER": "local[2]"},
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: job.poll() is not None or read_earlier(shop.out, mart).updated != before,
            f"{mart} is replaced",
            240,
            every=0.005,
        )
        assert job.poll() is None, "it ended before it was killed"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait(60)
