"""What moves stock, with the names the marts use. Quantities are units."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.events import Events

KINDS = ("Received", "Adjusted", "Reserved", "Released", "Issued", "Returned")


def movements(log: Events) -> DataFrame:
    """One row per stock event: topic, partition, offset, sku, version, kind, quantity, occurred_at."""
    frames = [
        log.of(f"daybook.inventory.Stock{kind}").select(
            *("topic", "partition", "offset", "sku", "version"),
            F.lit(kind.lower()).alias("kind"),
            *("quantity", "occurred_at"),
        )
        for kind in KINDS
    ]
    return reduce(DataFrame.unionByName, frames)
