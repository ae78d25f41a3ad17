"""One order for all partitions: Kafka orders a partition, and nothing across them; time does."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

ORDER = ("moment", "topic", "partition", "offset")


def timeline(envelopes: DataFrame) -> DataFrame:
    """The envelopes with `moment`, by which sorted (ties: topic, partition, offset) they are one history.

    `moment` is the recorded time, but never before what stands earlier in the same partition: a clock that
    was set back may not turn a partition's own order around.
    """
    earlier = Window.partitionBy("topic", "partition").orderBy("offset")
    so_far = earlier.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return envelopes.withColumn("moment", F.max("recorded_at").over(so_far))


def life(envelopes: DataFrame, correlation_id: str) -> DataFrame:
    """Everything that one command set off, of orders and of stock, in that order."""
    return timeline(envelopes).where(F.col("correlation_id") == correlation_id).orderBy(*ORDER)
