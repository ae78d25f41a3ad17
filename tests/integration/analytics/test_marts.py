"""Every mart from the log equals the one from the lake; its output is complete and names its end offsets."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow.types import is_decimal
from pyspark.sql import SparkSession

from analytics.delta import last_commit
from analytics.jobs.marts import Selection, events, publish, sources
from analytics.jobs.outputs import OutputReading, SetAside, preview, read_earlier, write
from analytics.lake.tables import NotRecorded
from analytics.lake.writer import update
from analytics.marts.catalogue import MARTS, Sources, built
from analytics.money import with_decimals
from analytics.offsets import AheadOfLog, stable_ends
from analytics.replay import Replay
from tests.integration.analytics.log_writer import (
    Topics,
    commit,
    create_topics,
    replace_topic,
    write_raw,
    writer,
)
from tests.integration.analytics.shop import events as shop_events
from tests.integration.analytics.shop import write_shop
from tests.integration.analytics.test_lake import placed


@pytest.fixture(scope="module")
def shop(kafka: str) -> Topics:
    """A correct shop, and one unreadable record."""
    topics = create_topics(kafka)
    write_shop(kafka, topics)
    with writer(kafka) as producer:
        producer.begin_transaction()
        write_raw(producer, topics.orders, "o-1", b"{}", None)
        producer.commit_transaction(30)
    return topics


@pytest.mark.full
@pytest.mark.timeout(600)  # thirteen marts, each computed from the log and from the lake
def test_every_mart_is_written_with_how_far_it_was_read(
    spark: SparkSession, kafka: str, shop: Topics, tmp_path: Path
) -> None:
    ends = stable_ends(kafka, (shop.orders, shop.inventory))
    selection = Selection(kafka, earlier=OutputReading(ends=ends))
    log = events(spark, selection)
    assert isinstance(log, Replay)
    update(spark, kafka, tmp_path / "lake", lambda _step: None, (shop.orders, shop.inventory))
    from_lake = Sources(events(spark, Selection(kafka, tmp_path / "lake")))
    from_lake.orders.persist()
    aside = [row.asDict() for row in log.set_aside.collect()]
    reading = OutputReading(ends=log.ends, set_aside=SetAside(len(aside), tuple(aside)))
    made_of = sources(spark, log, selection)
    made_of.orders.persist()
    counts = {}
    for name, mart in MARTS.items():
        write(mart.build(made_of), mart, reading, tmp_path)
        table = DeltaTable(tmp_path / name).to_pyarrow_table()
        assert all(is_decimal(table.schema.field(money).type) for money in mart.money), name
        keys = list(zip(*(table.column(key).to_pylist() for key in mart.grain), strict=True))
        assert len(set(keys)) == len(keys), f"{name} has its grain"
        assert keys == sorted(keys), f"{name} is in the order of its grain"
        decimals = with_decimals(mart.build(from_lake), mart.money)
        assert decimals.sort(*mart.grain).toArrow().to_pylist() == table.to_pylist(), name
        assert preview(mart, tmp_path).row_count == min(5, len(keys))
        counts[name] = len(keys)
    made_of.orders.unpersist()
    from_lake.orders.unpersist()
    log.log.unpersist()
    assert counts["orders"] == counts["audit_orders"] == 4
    assert counts["stockouts"] == 1
    assert counts["stock_ledger"] == len({(e.sku, e.occurred_at) for e in shop_events() if "Stock" in e.TYPE})
    assert [*built(tmp_path)] == [*MARTS]
    _, written = last_commit(built(tmp_path)["orders"])
    assert (written["mart"], written["set_aside"]["records"]) == ("orders", 1)
    assert written["rules"] == 13, "ten columns that are never absent, two sums, the grain"
    assert written["set_aside"]["first"][0]["reason"] == "no_envelope"
    assert read_earlier(tmp_path, "orders") == reading


def test_offsets_of_another_log_are_refused(spark: SparkSession, kafka: str, shop: Topics) -> None:
    beyond = {shop.orders: {0: 10**6, 1: 0}}
    with pytest.raises(AheadOfLog, match="the earlier output"):
        events(spark, Selection(kafka, earlier=OutputReading(ends=beyond)))


def test_an_output_of_a_log_that_was_replaced_is_refused(
    spark: SparkSession, kafka: str, topics: Topics, tmp_path: Path
) -> None:
    with writer(kafka) as producer:
        commit(producer, topics.orders, [(placed(1), 1)])
    ends = stable_ends(kafka, [topics.orders])
    selection = Selection(kafka, earlier=OutputReading(ends=ends))
    publish(spark, ["orders"], selection, [], tmp_path.as_uri())
    selection = Selection(kafka, earlier=read_earlier(tmp_path.as_uri(), "orders"))
    assert events(spark, selection).events.count() == 1
    replace_topic(kafka, topics.orders)
    with writer(kafka) as producer:
        commit(producer, topics.orders, [(placed(2), 1)])
    with pytest.raises(NotRecorded, match="has seen another log"):
        events(spark, selection)
