"""Converts records of old versions to the newest version, on read: a chain of steps. Standard library only.

A step has a function only if the meaning changed; otherwise it applies the defaults of the newer schema.
"""

from collections.abc import Callable, Mapping
from typing import Any

from contracts.lock import Lock, Schema

Record = dict[str, Any]
Upcaster = Callable[[Record], Record]


def order_placed_1_to_2(placed: Record) -> Record:
    """Version 1 has no charges, so its gross is the sum of its lines; orders did not expire."""
    gross = sum(line["quantity"] * line["unit_price"] for line in placed["lines"])
    return {**placed, "charges": [], "gross": gross, "settle_by": None}


UPCASTERS: Mapping[tuple[str, int], Upcaster] = {("daybook.order.OrderPlaced", 1): order_placed_1_to_2}


def upcast(record: Record, schema_id: int, lock: Lock) -> Record:
    """Converts a record that was decoded with the schema of `schema_id` to its type's newest version. Lists and nested
    records are lists and dicts; timestamps are as the caller decoded them."""
    type_name = lock.type_of(schema_id)
    for older, newer in enumerate(lock.ids(type_name)[1:], start=1):
        if older >= lock.version(schema_id):
            step = UPCASTERS.get((type_name, older))
            record = _reshape(step(record) if step else record, lock.schema(newer))
    return record


def _reshape(record: Record, schema: Schema) -> Record:
    """Keeps the fields of the schema, also of the records in it: missing ones get their default, others are dropped."""
    return {
        field["name"]: _reshaped(record[field["name"]], field["type"])
        if field["name"] in record
        else field["default"]
        for field in schema["fields"]
    }


def _reshaped(value: Any, schema: Any) -> Any:
    match schema:
        case {"type": "record"}:
            return _reshape(value, schema)
        case {"type": "array", "items": {"type": "record"} as item}:
            return [_reshape(part, item) for part in value]
        case _:
            return value
