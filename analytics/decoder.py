"""Decodes the log's values in Python: for older schemas, and for the audit's fold.

A second reader of the same bytes, on purpose: the audit compares both."""

import io
import struct
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_type_hints

import fastavro
import pyarrow as pa

from analytics.errors import AnalyticsError
from contracts.lock import Lock, load_lock, plain
from contracts.records import RECORDS
from contracts.upcasters import Record, upcast

HEADER = struct.Struct(">bI")
_BROKEN = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, struct.error)


class UndecodableValue(AnalyticsError):
    """A value that does not match its schema id."""


def read_record(value: bytes, lock: Lock) -> tuple[str, Record]:
    """Returns the record name and the record in its newest shape, timestamps as micros. Raises UndecodableValue."""
    try:
        magic, schema_id = HEADER.unpack_from(value)
        if magic:
            raise UndecodableValue(f"begins with {magic}, not 0")
        body = io.BytesIO(value[HEADER.size :])
        record = fastavro.schemaless_reader(body, _schema(schema_id), None)
        if body.read(1):
            raise UndecodableValue(f"longer than schema {schema_id} says")
        return lock.type_of(schema_id), upcast(record, schema_id, lock)
    except _BROKEN as error:
        raise UndecodableValue(str(error) or type(error).__name__) from error


def read_event(value: bytes, lock: Lock) -> Any:
    """Returns the value as its generated dataclass. Raises UndecodableValue."""
    type_name, record = read_record(value, lock)
    event_type = RECORDS[type_name]
    items = _list_items(event_type)
    return event_type(**{name: _field(content, name, items) for name, content in record.items()})


def upcast_batches(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, kept: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the columns `kept`, then the record's own in their newest shape, then `undecodable`. `schema`
    is that of the result; its names and types must match exactly."""
    lock = load_lock()
    own = schema.names[len(kept) : -1]
    for batch in batches:
        records: list[Record | None] = []
        for value in batch.column("value").to_pylist():
            try:
                records.append(read_record(value, lock)[1])
            except UndecodableValue:
                records.append(None)
        columns = [batch.column(name).cast(schema.field(name).type) for name in kept]
        columns += [
            pa.array([record and record[name] for record in records], schema.field(name).type) for name in own
        ]
        columns.append(pa.array([record is None for record in records]))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


@cache
def _schema(schema_id: int) -> Any:
    return fastavro.parse_schema(plain(load_lock().schema(schema_id)))


@cache
def _list_items(event_type: type) -> dict[str, type | None]:
    """The fields that hold lists, with the dataclass of their items (None: plain items)."""
    hints = get_type_hints(event_type)
    lists = {
        field.name: get_args(hints[field.name]) for field in fields(event_type) if "tuple" in str(field.type)
    }
    return {name: item if hasattr(item, "TYPE") else None for name, (item, *_) in lists.items()}


def _field(content: Any, name: str, items: dict[str, type | None]) -> Any:
    if name not in items:
        return content
    item_type = items[name]
    return tuple(content) if item_type is None else tuple(item_type(**item) for item in content)
