"""Straight-line Avro encoders: one Python expression per schema, generated at first use.

A general writer asks at every field of every record what kind of field it is. The schemas are known, so an
expression that only joins can be made of each: a third of the time of fastavro's writer for our small
records, and the same bytes (a contract test compares every golden record). Numbers are remembered: prices and
times recur. Covered is what the contracts use; anything else is a TypeError at the first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

Encoder = Callable[[Any], bytes]

REMEMBERED = 16_384  # values of one kind: a few MB at most
ONE_BYTE = 64  # below it a length takes one byte


@lru_cache(REMEMBERED, typed=True)
def long(number: int) -> bytes:
    """Avro's variable-length zig-zag integer."""
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number} does not fit a long")
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


@lru_cache(REMEMBERED, typed=True)
def int32(number: int) -> bytes:
    """Avro's int: the same bytes, 32 bits."""
    if not -(1 << 31) <= number < 1 << 31:
        raise OverflowError(f"{number} does not fit an int")
    return long(number)


def binary(value: bytes) -> bytes:
    return LENGTHS[len(value)] + value


class Lengths(dict[int, bytes]):
    """Lengths of strings and bytes, encoded: the short ones are a lookup, which costs no call of Python's."""

    def __missing__(self, length: int) -> bytes:
        return long(length)


LENGTHS = Lengths({length: long(length) for length in range(ONE_BYTE)})


def encoder(schema: dict[str, Any]) -> Encoder:
    """The encoder of a record schema: takes the record, an object with the fields as attributes."""
    source = _Source()
    name = source.record(schema)
    names: dict[str, Any] = {"long": long, "int32": int32, "binary": binary, "LENGTHS": LENGTHS}
    made: dict[str, Encoder] = {}
    names |= {"ENUMS": source.enums, "join": b"".join, "MADE": made}
    exec("\n".join(source.lines), names)  # made of our own schemas' names: identifiers
    return made[name]


class _Source:
    """Collects the functions of one schema, nested records first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.enums: dict[str, dict[str, bytes]] = {}
        self._functions: dict[str, str] = {}

    def record(self, schema: dict[str, Any]) -> str:
        name = f"encode_{schema['name']}"
        self._functions[schema["name"]] = name
        self._functions[f"{schema.get('namespace')}.{schema['name']}"] = name
        parts = [self._part(field["type"], f"record.{field['name']}", 1) for field in schema["fields"]]
        self.lines += [
            f"def {name}(record):",
            f"    return join(({', '.join(parts)},))",
            f"MADE[{name!r}] = {name}",
        ]
        return name

    def _part(self, kind: Any, value: str, depth: int) -> str:
        """The expression that makes the bytes of `value`, of schema `kind`."""
        match kind:
            case "int":
                return f"int32({value})"
            case "long":
                return f"long({value})"
            case "string":
                return f"LENGTHS[len(text := {value}.encode())] + text"
            case "boolean":
                return f"(b'\\1' if {value} else b'\\0')"
            case "bytes":
                return f"binary({value})"
            case str() if kind in self._functions:
                return f"{self._functions[kind]}({value})"
            case ["null", other]:
                return f"(b'\\0' if {value} is None else b'\\2' + {self._part(other, value, depth)})"
            case {"type": "array", "items": items}:
                each = f"item{depth}"
                inner = self._part(items, each, depth + 1)
                filled = f"long(len({value})) + join([{inner} for {each} in {value}]) + b'\\0'"
                return f"({filled} if {value} else b'\\0')"
            case {"type": "enum", "name": name, "symbols": symbols}:
                self.enums[name] = {symbol: long(index) for index, symbol in enumerate(symbols)}
                return f"ENUMS[{name!r}][{value}]"
            case {"type": "record"}:
                return f"{self.record(kind)}({value})"
            case {"type": str(plain)}:  # a logical type: written as what it is made of
                return self._part(plain, value, depth)
            case _:
                raise TypeError(f"no encoder for {kind!r}")
