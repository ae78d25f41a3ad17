"""Every amount of the contracts is money in the tables, and nothing else is."""

from typing import Any

from analytics.envelope import EVENT_TOPICS
from analytics.money import FIELDS
from contracts.lock import load_lock


def plain_longs(schema: Any, name: str = "") -> set[str]:
    """The names of the fields, at any depth, that are a `long` without a logical type."""
    match schema:
        case {"type": "record", "fields": fields}:
            return {leaf for field in fields for leaf in plain_longs(field["type"], field["name"])}
        case {"type": "array", "items": items}:
            return plain_longs(items, name)
        case list():
            return {leaf for part in schema for leaf in plain_longs(part, name)}
        case "long":
            return {name}
        case _:
            return set()


def test_the_money_of_the_contracts_is_known() -> None:
    lock = load_lock()
    schemas = [lock.schema(entry.id) for entry in lock.entries if entry.topic in EVENT_TOPICS]
    names = {
        name for schema in schemas if schema["namespace"] != "daybook.kernel" for name in plain_longs(schema)
    }
    assert names == FIELDS
