"""Records to bytes and back: a dataclass, Avro, in Confluent framing (a zero byte, the schema id, the body).

Times and money stay integers: the logical types of the schemas are for other readers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any, get_args, get_type_hints

from fastavro import parse_schema, schemaless_reader

from contracts.lock import load_lock
from contracts.records import ENCODERS
from contracts.upcasters import upcast
from services.kernel.errors import KernelError
from services.kernel.record.registry import record_class, schema_id

FRAME = struct.Struct(">bI")


class Undecodable(KernelError, ValueError):
    """Not a record of ours: not framed, of an unknown schema, cut short, or longer than its schema says."""


def encode(topic: str, record: Any) -> bytes:
    """The value of `record` in `topic`. Raises KeyError where the type does not belong there."""
    frame, encode_body = _writer(topic, record.__class__)
    return frame + encode_body(record)


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
def _writer(topic: str, record: type) -> tuple[bytes, Callable[[Any], bytes]]:
    number = schema_id(topic, record.TYPE)  # type: ignore[attr-defined]
    return FRAME.pack(0, number), ENCODERS[record]


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
    """The fields that are not plain: a record (its class) or a sequence (its items' class, or None)."""
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


def _builder(record: type) -> Callable[[dict[str, Any]], Any]:
    """Puts an instance around the decoded dictionary: a frozen dataclass's constructor takes far longer."""
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
        instance: Any = new(record)
        adopt(instance, "__dict__", fields)
        return instance

    return build
