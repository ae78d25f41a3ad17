"""The audit on a real broker and a real database."""

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pyspark.sql import SparkSession

from analytics.audit import AuditSources, audit
from analytics.evidence.comparison import BadExpectation, read_expectation
from analytics.evidence.read_models import ALL, read_models
from analytics.evidence.report import Verdict, to_html
from analytics.offsets import AheadOfLog, ReplayIncomplete, stable_ends
from contracts.order.events import OrderShipped
from services.projection.read_models import READ_MODELS
from tests.integration.analytics.log_writer import Topics, commit, create_topics, write_raw, writer
from tests.integration.analytics.shop import AT, confirmed, placed, project, returned, write_shop

pytestmark = pytest.mark.long


@pytest.fixture
def sources(kafka: str, fresh_database: str) -> AuditSources:
    """A correct shop whose read models have read everything."""
    topics = create_topics(kafka)
    write_shop(kafka, topics)
    project(kafka, topics, fresh_database)
    return AuditSources(kafka, fresh_database, topics.orders, topics.inventory)


def audited(spark: SparkSession, sources: AuditSources, wait: float = 30) -> Verdict:
    return audit(spark, sources, wait, lambda _: None)


def change(sources: AuditSources, sql: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(sources.database_url)
        await connection.execute(sql)
        await connection.close()

    asyncio.run(run())


def pretend_read(sources: AuditSources) -> None:
    """Moves the positions to the end of the log without rows, like a projection that skips records."""
    for topic, partitions in stable_ends(sources.kafka, (sources.orders, sources.inventory)).items():
        for number, end in partitions.items():
            where = f"topic = '{topic}' AND partition = {number}"
            change(sources, f"UPDATE position SET next_offset = {end} WHERE {where}")


def named(verdict: Verdict) -> list[tuple[str, str, int | None]]:
    return [(difference.kind, difference.key, difference.version) for difference in verdict.differences]


@pytest.mark.full
def test_rows_are_read_in_parts_of_one_moment(spark: SparkSession, sources: AuditSources) -> None:
    columns = "version, event_id, lineage, changed_at, received, adjusted, returned, issued, reserved"
    many = f"SELECT 'X' || n, {columns} FROM stock.stock, generate_series(1, 3000) n WHERE sku = 'A'"
    change(sources, f"INSERT INTO stock.stock (sku, {columns}) {many}")
    parked = "'order_history', 'o-1', 1, 'order.events', 0, 7, '', 'a reason', 'failed'"
    change(
        sources,
        'INSERT INTO parked (read_model, key, version, topic, partition, "offset", headers, reason, kind) '
        f"VALUES ({parked})",
    )
    assert set(ALL) == {model.name for model in READ_MODELS}
    with read_models(spark, sources.database_url, blocks_per_task=4) as models:
        assert models.parked == {("order.events", "o-1"): 1}, "of a read model that has nothing to compare"
        rows = models.rows["stock"]
        change(sources, "DELETE FROM stock.stock WHERE sku LIKE 'X%'")
        change(sources, "UPDATE stock.stock SET received = issued")
        seen = rows.groupBy("on_hand").count().collect()
        assert rows.rdd.getNumPartitions() > 5
        assert sum(row["count"] for row in seen) == 3_002
        assert all(row["on_hand"] for row in seen)
        assert rows.select("entity").distinct().count() == 3_002


def test_a_correct_shop_is_identical(spark: SparkSession, sources: AuditSources) -> None:
    verdict = audited(spark, sources)
    assert verdict.differences == []
    assert verdict.identical
    orders, stock, sales = verdict.comparisons
    assert (orders.keys, stock.keys, sales.keys) == (4, 2, 2)
    assert orders.totals["log"] == {"gross": 3 * 6_100_000 + 6_000_000, "refund": 5_100_000}
    assert stock.totals["spark"] == {"on_hand": 105, "reserved": 0}
    assert sales.totals["read_model"]["gross"] == 6_100_000
    assert len(set(orders.fingerprints.values())) == 1
    assert json.loads(verdict.to_json())["identical"]
    assert "<svg" in to_html(verdict)


@pytest.mark.full
def test_an_order_that_came_back_in_part_is_no_difference(spark: SparkSession, sources: AuditSources) -> None:
    order = placed("o-5", "A")
    life = [
        order,
        confirmed(order),
        OrderShipped("o-5", AT, issue=("A",)),
        returned("o-5", 1, complete=False),
    ]
    with writer(sources.kafka) as producer:
        commit(producer, sources.orders, [(event, version) for version, event in enumerate(life, start=1)])
    project(sources.kafka, Topics(sources.orders, sources.inventory), sources.database_url)
    assert audited(spark, sources).differences == []


def test_rows_changed_by_hand_are_named(spark: SparkSession, sources: AuditSources) -> None:
    change(sources, "UPDATE orders.orders SET gross = gross + 1 WHERE order_id = 'o-1'")
    change(sources, "DELETE FROM orders.orders WHERE order_id = 'o-2'")
    change(sources, "UPDATE stock.stock SET received = 99 WHERE sku = 'A'")
    change(sources, "UPDATE sales_daily.sales_daily SET orders = 7 WHERE orders = 1")
    verdict = audited(spark, sources)
    assert not verdict.identical
    assert named(verdict) == [
        ("orders", "o-1", 4),
        ("orders", "o-2", 1),
        ("stock", "A", 4),
        ("sales_daily", "2011-03-13/Norway/GBP", None),
    ]


@pytest.mark.full
def test_a_row_left_behind_differs_from_its_next_version_on(
    spark: SparkSession, sources: AuditSources
) -> None:
    change(
        sources,
        "UPDATE orders.orders SET version = 2, status = 'confirmed', refunded = 0 WHERE order_id = 'o-1'",
    )
    assert named(audited(spark, sources)) == [("orders", "o-1", 3)]


@pytest.mark.full
def test_a_doubled_record_stops_its_key(spark: SparkSession, sources: AuditSources) -> None:
    """The accounts agree on all records before it."""
    with writer(sources.kafka) as producer:
        commit(producer, sources.orders, [(placed("o-4", "B"), 1)])
    pretend_read(sources)
    verdict = audited(spark, sources)
    assert (verdict.word, verdict.identical, verdict.differences) == ("stopped", False, [])
    assert [(key, step) for _, key, step in verdict.aside.stopped] == [("o-4", "forked")]
    assert "1 keys stopped" in to_html(verdict)
    assert json.loads(verdict.to_json())["verdict"] == "stopped"


def test_a_foreign_record_is_listed_and_changes_nothing(spark: SparkSession, sources: AuditSources) -> None:
    with writer(sources.kafka) as producer:
        producer.begin_transaction()
        write_raw(producer, sources.inventory, "A", b"{}", None)
        producer.commit_transaction(30)
    pretend_read(sources)
    verdict = audited(spark, sources)
    assert verdict.identical
    ((where, reason),) = verdict.aside.named
    assert (where.split("/")[0], reason) == (sources.inventory, "no_envelope")
    assert (verdict.aside.foreign, verdict.aside.decided) == (1, 0)
    assert "1 foreign records" in to_html(verdict)


def test_it_waits_for_the_read_models_but_not_for_ever(spark: SparkSession, sources: AuditSources) -> None:
    with writer(sources.kafka) as producer:
        commit(producer, sources.orders, [(OrderShipped("o-4", AT, issue=("B",)), 2)])
    with pytest.raises(ReplayIncomplete, match=sources.orders):
        audited(spark, sources, wait=1)


def test_read_models_of_another_log_are_refused(spark: SparkSession, sources: AuditSources) -> None:
    change(sources, "UPDATE position SET next_offset = 1000000 WHERE read_model = 'stock'")
    with pytest.raises(AheadOfLog, match="stock is at"):
        audited(spark, sources)


def expectation(correlation: str) -> str:
    """What is expected of the shop of these tests, with one order that differs."""
    rows: list[dict[str, Any]] = [
        {"kind": "orders", "key": "o-1", "status": "returned", "gross": 6_100_000, "refund": 5_100_000},
        {"kind": "orders", "key": "o-2", "status": "cancelled", "gross": 6_100_000, "refund": 0},
        {"kind": "orders", "key": "o-3", "status": "rejected", "gross": 6_000_000, "refund": 0},
        {"kind": "orders", "key": "o-4", "status": "confirmed", "gross": 6_100_000, "refund": 0},
        {"kind": "stock", "key": "A", "on_hand": 100, "reserved": 0},
        {"kind": "stock", "key": "B", "on_hand": 5, "reserved": 0},
        {"kind": "totals", "key": "orders", "count": 4},
    ]
    return "\n".join(json.dumps(row | {"correlation": correlation}) for row in rows)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "lines of no sender, or of several: None, None"),
        (f"{expectation('a')}\n{expectation('b')}", "lines of no sender, or of several: a, b"),
        (expectation("a").replace("5100000", "null"), "this line expects nothing"),
        (expectation("a").replace("5100000", "5.1"), "this line expects nothing"),
        (expectation("a").replace('"key": "A"', '"sku": "A"'), "this line expects nothing"),
        ('{"correlation": "a", "orders": {}, "stock": {}}', "this line expects nothing"),
        (expectation("a")[:-5], 'this line expects nothing of an order or a SKU: {"kind": "totals"'),
    ],
)
def test_an_expectation_of_another_form_is_refused(
    spark: SparkSession, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "expectation.jsonl"
    file.write_text(content)
    with pytest.raises(BadExpectation, match=message):
        read_expectation(spark, file)


@pytest.mark.full
def test_what_was_expected_is_compared_too(
    spark: SparkSession, sources: AuditSources, tmp_path: Path
) -> None:
    file = tmp_path / "expectation.jsonl"
    file.write_text(expectation("corr"))
    given = AuditSources(sources.kafka, sources.database_url, sources.orders, sources.inventory, file)
    assert named(audited(spark, given)) == [("expected orders", "o-4", None)]
    file.write_text(expectation("o-4 is not ours, nor is anything else"))
    verdict = audited(spark, given)
    assert verdict.identical
    assert {part.kind: (part.keys, part.left_out) for part in verdict.comparisons[3:]} == {
        "expected orders": (0, 4),
        "expected stock": (0, 2),
    }
    assert "expected stock: 2 skipped" in to_html(verdict)
