"""Every cell of every mart, as other code computes it from the lake's tables: nine months of orders."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.lake.views import connect
from analytics.marts.catalogue import MARTS
from tests.integration.analytics import other_marts
from tests.integration.analytics.log_writer import Topics
from tests.integration.analytics.test_lake_marts import Shop

pytestmark = pytest.mark.long


@pytest.mark.timeout(600)  # thirteen marts
def test_other_code_computes_the_same_marts(
    spark: SparkSession, kafka: str, topics: Topics, lake: Path, tmp_path: Path
) -> None:
    shop = Shop(spark, kafka, topics, lake, tmp_path / "marts")
    shop.log.grow(orders=400, events=3_000)  # some conversations are still open
    shop.copy()
    shop.publish(*MARTS)
    assert other_marts.MARTS.keys() == MARTS.keys()
    cells, different = other_marts.differences(connect(lake, {}), shop.out)
    assert different == []
    assert cells > 10_000
