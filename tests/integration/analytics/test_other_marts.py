"""Every cell of every mart, as other code computes it from the lake's tables: nine months of orders."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.jobs.marts import Selection, publish
from analytics.lake.tables import read_commits
from analytics.lake.views import connect
from analytics.lake.writer import update
from analytics.marts.catalogue import MARTS
from tests.integration.analytics import other_marts
from tests.integration.analytics.growing_shop import GrowingShop
from tests.integration.analytics.log_writer import Topics
from tests.integration.analytics.test_lake import no_progress


@pytest.mark.timeout(600)  # thirteen marts
def test_other_code_computes_the_same_marts(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path, tmp_path: Path
) -> None:
    shop = GrowingShop(kafka, topics, seed=11)
    shop.grow(orders=400, events=3_000)  # some conversations are still open
    update(spark, kafka, lake, no_progress, (topics.orders, topics.inventory))
    out = tmp_path / "marts"
    publish(spark, list(MARTS), Selection(kafka, lake), read_commits(lake), out)
    assert other_marts.MARTS.keys() == MARTS.keys()
    cells, different = other_marts.differences(connect(lake, tmp_path / "none"), out)
    assert different == []
    assert cells > 10_000
