"""A lake whose log was replaced: the topics of a rebuilt site are new, and may lack what the lake has copied."""

from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from analytics.jobs import marts
from analytics.jobs.outputs import OutputReading
from analytics.lake import writer as lake_writer
from analytics.lake.reader import open_lake
from analytics.lake.tables import LOST, NoLake, NotRecorded, compact, copy_of, lake_report, name_of_log
from analytics.lake.views import connect
from analytics.lake.writer import LakeLogReplaced, update
from analytics.offsets import AheadOfLog
from tests.integration.analytics.log_writer import Topics, commit, create_topics, replace_topic, writer
from tests.integration.analytics.test_lake import assert_same, everything, no_progress, placed, shipped


@pytest.mark.full
def test_a_lake_of_another_log_is_refused(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(kafka, topics.orders, range(1, 10))
    last = update(spark, kafka, lake, no_progress, [topics.orders])
    with pytest.raises(LakeLogReplaced, match="--log-replaced"):
        update(spark, kafka, lake, no_progress, [create_topics(kafka).orders])
    beyond = replace(last, ends={topics.orders: {0: 1000, 1: 0}})
    monkeypatch.setattr(lake_writer, "read_commits", lambda _: [beyond])
    with pytest.raises(AheadOfLog, match="the lake is at"):
        update(spark, kafka, lake, no_progress, [topics.orders])


@pytest.mark.full
def test_what_a_replaced_log_had_alone_is_kept(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path
) -> None:
    """A site is lost with what it had not sent yet; another event takes the place of one of these."""
    both, alone = [(placed(1), 1), (placed(2), 1)], [(shipped(1), 2), (placed(3), 1)]
    with writer(kafka) as producer:
        commit(producer, topics.orders, both)
        commit(producer, topics.orders, alone)
    former = update(spark, kafka, lake, no_progress, [topics.orders])
    replace_topic(kafka, topics.orders)
    with writer(kafka) as producer:
        commit(producer, topics.orders, both)
        commit(producer, topics.orders, [(shipped(1), 2)], site="-away")
    with pytest.raises(LakeLogReplaced, match="--log-replaced"):
        update(spark, kafka, lake, no_progress, [topics.orders])
    now = update(spark, kafka, lake, no_progress, [topics.orders], replaced=True)
    assert (now.number, now.batch) == (2, 1)
    assert_same(spark, kafka, lake)
    assert lost_of(lake) == [("o-1", 2, "o-1-2"), ("o-3", 1, "o-3-1")]
    assert "2 events of a log that was replaced are not in this one" in lake_report(lake)
    connection = connect(lake, {})
    assert connection.sql("SELECT count(*) FROM events_lost").fetchall() == [(2,)]
    assert connection.sql("SELECT id FROM order_shipped").fetchall() == [("o-1-2-away",)]
    events = open_lake(spark, lake, former.time).events.collect()
    assert {row["id"] for row in events} == {"o-1-1", "o-2-1", "o-1-2", "o-3-1"}

    output = OutputReading(ends=former.ends, log=name_of_log(former.log))
    with pytest.raises(NotRecorded, match="has seen another log"):
        marts.events(spark, marts.Selection(kafka, lake, output))

    with writer(kafka) as producer:  # the mirror had not sent it yet
        commit(producer, topics.orders, [(placed(3), 1)])
    update(spark, kafka, lake, no_progress, [topics.orders])
    assert lost_of(lake) == [("o-1", 2, "o-1-2")]
    compact(lake)
    assert_same(spark, kafka, lake)

    rmtree(copy_of(lake, former.log))
    with pytest.raises(NoLake, match="was removed"):
        open_lake(spark, lake, former.time)
    update(spark, kafka, lake, no_progress, [topics.orders])
    assert lost_of(lake) == [("o-1", 2, "o-1-2")]
    rmtree(copy_of(lake, now.log))
    with pytest.raises(NoLake, match="remove the whole lake"):
        update(spark, kafka, lake, no_progress, [topics.orders])


def lost_of(lake: Path) -> list[tuple[str, int, str]]:
    rows = DeltaTable(str(lake / LOST)).to_pyarrow_table().to_pylist()
    return sorted((row["entity"], row["version"], row["id"]) for row in rows)
