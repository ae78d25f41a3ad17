"""Converts rows to columns: one array per column, so that a batch is one statement with `unnest`."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from services.projection.engine.read_model import Row, Versioned

ENGINE_COLUMNS = {"version": "bigint", "event_id": "text", "lineage": "jsonb", "changed_at": "timestamptz"}
"""The columns of `Versioned` that the engine manages, for a store that keeps all of them."""


def versioned_row(record: Mapping[str, Any], row: Row) -> Versioned[Row]:
    """Returns the row with the engine's columns of its record."""
    lineage = tuple((epoch, first) for epoch, first in record["lineage"])
    return Versioned(row, record["version"], record["event_id"], lineage, record["changed_at"])


def columns(rows: Iterable[Any], names: Sequence[str]) -> list[list[Any]]:
    """Returns one list per name, in the order of `names`."""
    rows = list(rows)
    return [list(map(attrgetter(name), rows)) for name in names]


def unnest(types: Mapping[str, str], lists: Sequence[str] = ()) -> str:
    """`(a, b) SELECT a, b FROM unnest($1::…[], $2::…[])` for the columns and their types. `lists` are text[] columns
    passed as jsonb after the others, because arrays of arrays would have to be rectangular."""
    parameters = {**types, **dict.fromkeys(lists, "jsonb")}
    names = ", ".join(parameters)
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(parameters.values(), start=1))
    values = ", ".join(
        f"ARRAY(SELECT jsonb_array_elements_text({name}))" if name in lists else name for name in parameters
    )
    return f"({names}) SELECT {values} FROM unnest({arrays}) AS n({names})"


def upsert(table: str, types: Mapping[str, str], *key: str, lists: Sequence[str] = ()) -> str:
    """Inserts or replaces rows by `key`. The columns are those of `unnest`."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in (*types, *lists) if name not in key)
    return (
        f"INSERT INTO {table} {unnest(types, lists)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    )
