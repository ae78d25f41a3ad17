"""Records to bytes and back: a dataclass, Avro, in Confluent framing (a zero byte, the schema id, the Avro
body).

Times and money stay integers: the logical types of the schemas are for other readers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any, get_args, get_type_hints

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from contracts.lock import load_lock
from contracts.upcasters import upcast
from services.kernel.registry import record_class, schema_id

FRAME = struct.Struct(">bI")


class Undecodable(ValueError):
    """Not a record of ours: not framed, of an unknown schema, cut short, or longer than its schema says."""


def encode(topic: str, record: Any) -> bytes:
    """The value of `record` in `topic`. Raises KeyError where the type does not belong there."""
    frame, schema, flatten = _writer(topic, type(record))
    out = BytesIO()
    out.write(frame)
    schemaless_writer(out, schema, flatten(record))
    return out.getvalue()


def decode(value: bytes | None) -> Any:
    """The record in `value`, in its type's newest shape, whatever locked version it was written with.

    Raises `Undecodable`.
    """
    if value is None or len(value) < FRAME.size or value[0] != 0:
        raise Undecodable("not framed: no zero byte and schema id in front")
    number = FRAME.unpack_from(value)[1]
    try:
        schema, newest, build = _reader(number)
    except KeyError:
        raise Undecodable(f"schema id {number} is not in the lock") from None
    body = BytesIO(value)
    body.seek(FRAME.size)
    try:
        record = schemaless_reader(body, schema, None)
    except (EOFError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise Undecodable(f"schema {number}: {error!r}") from error
    if body.tell() != len(value):
        raise Undecodable(f"schema {number}: {len(value) - body.tell()} bytes too many")
    return build(record if newest else upcast(record, number, load_lock()))


@cache
def _writer(topic: str, record: type) -> tuple[bytes, Any, Callable[[Any], dict[str, Any]]]:
    number = schema_id(topic, record.TYPE)  # type: ignore[attr-defined]
    return FRAME.pack(0, number), _schema(number), _flattener(record)


@cache
def _reader(number: int) -> tuple[Any, bool, Callable[[dict[str, Any]], Any]]:
    lock = load_lock()
    newest = lock.ids(lock.type_of(number))[-1] == number
    return _schema(number), newest, _builder(record_class(number))


@cache
def _schema(number: int) -> Any:
    return parse_schema(_plain(load_lock().schema(number)))


def _plain(schema: Any) -> Any:
    """Without logical types: fastavro would make slow objects of plain integers."""
    match schema:
        case dict():
            return {name: _plain(part) for name, part in schema.items() if name != "logicalType"}
        case list():
            return [_plain(part) for part in schema]
        case _:
            return schema


def _parts(record: type) -> list[tuple[str, type | None]]:
    """The fields that are not plain: a record (its class), or a sequence (its items' class; None for plain
    items)."""
    found: list[tuple[str, type | None]] = []
    for name, hint in get_type_hints(record).items():
        if isinstance(hint, type) and hasattr(hint, "TYPE"):
            found.append((name, hint))
        elif getattr(hint, "__origin__", None) is tuple:
            item = get_args(hint)[0]
            found.append((name, item if hasattr(item, "TYPE") else None))
    return found


def _is_sequence(record: type, name: str) -> bool:
    return getattr(get_type_hints(record)[name], "__origin__", None) is tuple


def _flattener(record: type) -> Callable[[Any], dict[str, Any]]:
    """A record's fields as fastavro wants them. Without nested records that is the instance's own
    dictionary."""
    nested = [(name, _is_sequence(record, name), _flattener(part)) for name, part in _parts(record) if part]
    if not nested:
        return vars

    def flatten(value: Any) -> dict[str, Any]:
        fields = dict(vars(value))
        for name, many, inner in nested:
            part = fields[name]
            fields[name] = [inner(item) for item in part] if many else inner(part)
        return fields

    return flatten


def _builder(record: type) -> Callable[[dict[str, Any]], Any]:
    """Makes an instance around the decoded dictionary: a frozen dataclass's own constructor takes five
    times as long."""
    parts = [
        (name, _is_sequence(record, name), _builder(part) if part else None) for name, part in _parts(record)
    ]
    new, adopt = object.__new__, object.__setattr__

    def build(fields: dict[str, Any]) -> Any:
        for name, many, inner in parts:
            part = fields[name]
            if inner is None:
                fields[name] = tuple(part)
            else:
                fields[name] = tuple([inner(item) for item in part]) if many else inner(part)
        instance = new(record)
        adopt(instance, "__dict__", fields)
        return instance

    return build


@cache
def _flattener(record_type: type) -> Callable[[Any], Fields]:
    """Record → the dict that fastavro writes. A record without nested ones lends its own `__dict__`."""
    nested = [(name, _flattener(inner), many) for name, inner, many in _nested(record_type)]
    if not nested:
        return vars

    def flatten(record: Any) -> Fields:
        fields: Fields = {**record.__dict__}
        for name, inner, many in nested:
            fields[name] = [inner(each) for each in fields[name]] if many else inner(fields[name])
        return fields

    return flatten


@cache
def _builder(record_type: type) -> Callable[[Fields], Any]:
    """Decoded dict → record, past the frozen dataclass's slow `__init__`; lists become tuples."""
    nested = {name: (_builder(inner), many) for name, inner, many in _nested(record_type)}
    arrays = [name for name, hint in get_type_hints(record_type).items() if get_origin(hint) is tuple]
    singles = [(name, inner) for name, (inner, many) in nested.items() if not many]
    plain = [name for name in arrays if name not in nested]
    records = [(name, nested[name][0]) for name in arrays if name in nested]
    new = object.__new__

    def build(fields: Fields) -> Any:
        for name in plain:
            fields[name] = tuple(fields[name])
        for name, inner in records:
            fields[name] = tuple([inner(each) for each in fields[name]])
        for name, inner in singles:
            fields[name] = inner(fields[name])
        record = new(record_type)
        record.__dict__.update(fields)
        return record

    return build
