"""The days' sales in two accounts: the read model and the mart."""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from analytics.evidence.comparison import Comparison, Difference, join_accounts, summary
from analytics.evidence.entities import NAMED_KEYS
from analytics.marts.daily_revenue import GRAIN, daily_revenue
from analytics.replay import Replay
from analytics.staging import orders

SALES_FIELDS = ("gross", "returned", "orders", "units")


def compare(
    session: SparkSession, log: Replay, read_model: pa.Table
) -> tuple[Comparison, list[Difference], list[tuple[str, int]]]:
    """The comparison, what differs, and the net of each day in micros."""
    mart = daily_revenue(orders.confirmed(log), orders.cancelled(log), orders.returned(log)).persist()
    key = F.concat_ws("/", *GRAIN).alias("entity")
    accounts = {
        "read_model": session.createDataFrame(read_model).select(key, *SALES_FIELDS),
        "spark": mart.select(key, *SALES_FIELDS),
    }
    joined = join_accounts(accounts, SALES_FIELDS)
    result = summary("sales_daily", joined, tuple(accounts), SALES_FIELDS)
    differences = [
        Difference(
            "sales_daily",
            row["entity"],
            None,
            f"read_model: {row['read_model_rendering'] or 'nothing'}; spark: {row['spark_rendering'] or 'nothing'}",
        )
        for row in (
            joined.where("NOT same").orderBy("entity").limit(NAMED_KEYS).collect() if result.differing else []
        )
    ]
    by_day = mart.groupBy("day").agg(F.sum("net").alias("net")).orderBy("day").collect()
    mart.unpersist()
    return result, differences, [(str(row["day"]), row["net"]) for row in by_day]
