"""Money is a decimal in whatever is written for others to read, and a number of micros in the log and while jobs count.

Both are exact: `MONEY` has room for every 64-bit number of micros."""

from collections.abc import Callable, Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, LongType, StructType

MONEY = "decimal(19,6)"
FIELDS = frozenset({"gross", "refund", "unit_price", "amount"})
"""The fields of events that are micros; tests/unit/analytics/test_money.py compares them with the contracts."""
Leaf = Callable[[str, DataType, Column], Column]


def with_decimals(rows: DataFrame, fields: Collection[str] = FIELDS) -> DataFrame:
    """Events of the log, or rows of a mart, with `fields` of micros as MONEY, also in structs and lists."""
    micro = F.lit("0.000001").cast("decimal(7,6)")

    def decimal(name: str, kind: DataType, value: Column) -> Column:
        money = name in fields and isinstance(kind, LongType)
        return (value.cast("decimal(19,0)") * micro).cast(MONEY) if money else value

    return _converted(rows, decimal)


def with_micros(rows: DataFrame) -> DataFrame:
    """The same back."""
    return _converted(rows, _micros)


def _micros(_name: str, kind: DataType, value: Column) -> Column:
    million = F.lit(1_000_000).cast("decimal(7,0)")
    return (value * million).cast("long") if isinstance(kind, DecimalType) else value


def _converted(frame: DataFrame, leaf: Leaf) -> DataFrame:
    columns = ((field.name, field.dataType) for field in frame.schema.fields)
    return frame.select(*(_value(name, kind, F.col(name), leaf).alias(name) for name, kind in columns))


def _value(name: str, kind: DataType, value: Column, leaf: Leaf) -> Column:
    match kind:
        case StructType():
            parts = ((part.name, part.dataType) for part in kind.fields)
            fields = (_value(part, of, value[part], leaf).alias(part) for part, of in parts)
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType():
            return F.transform(value, lambda item: _value(name, kind.elementType, item, leaf))
        case _:
            return leaf(name, kind, value)
