"""Straight-line Avro encoders: one Python function per schema, generated at first use.

A general writer asks at every field of every record what kind of field it is. The schemas are known, so
that a function that
only appends can be made of each: it takes about half the time of fastavro's for our small records, and
writes the same bytes
(a contract test compares every golden record). Covered is what the contracts use; anything else is a
TypeError at the first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Append = Callable[[bytes], None]
Encoder = Callable[[Any, Append], None]

SMALL = [bytes([(number << 1) ^ (number >> 63)]) for number in range(-64, 64)]


def long(number: int, append: Append) -> None:
    """Avro's variable-length zig-zag integer."""
    if -64 <= number < 64:
        append(SMALL[number + 64])
        return
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number} does not fit a long")
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    append(bytes(out))


def int32(number: int, append: Append) -> None:
    """Avro's int: the same bytes, 32 bits."""
    if -64 <= number < 64:
        append(SMALL[number + 64])
    elif -(1 << 31) <= number < 1 << 31:
        long(number, append)
    else:
        raise OverflowError(f"{number} does not fit an int")


def text(value: str, append: Append) -> None:
    data = value.encode()
    size = len(data)
    if size < 64:
        append(SMALL[size + 64])
    else:
        long(size, append)
    append(data)


def encoder(schema: dict[str, Any]) -> Encoder:
    """The encoder of a record schema: takes the record (an object with the fields as attributes) and
    `append`."""
    writer = _Source()
    name = writer.record(schema)
    names: dict[str, Any] = {"long": long, "int32": int32, "text": text, "ENUMS": writer.enums}
    exec("\n".join(writer.lines), names)  # made of our own schemas' names: identifiers
    made: Encoder = names[name]
    return made


class _Source:
    """Collects the functions of one schema, nested records first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.enums: dict[str, dict[str, int]] = {}
        self._functions: dict[str, str] = {}

    def record(self, schema: dict[str, Any]) -> str:
        name = f"encode_{schema['name']}"
        self._functions[schema["name"]] = name
        self._functions[f"{schema.get('namespace')}.{schema['name']}"] = name
        body = [f"def {name}(record, append):"]
        for field in schema["fields"]:
            body += self._write(field["type"], f"record.{field['name']}", 1)
        self.lines += body
        return name

    def _write(self, kind: Any, value: str, depth: int) -> list[str]:
        """The lines that append `value` of schema `kind`."""
        indent = "    " * depth
        match kind:
            case "int":
                return [f"{indent}int32({value}, append)"]
            case "long":
                return [f"{indent}long({value}, append)"]
            case "string":
                return [f"{indent}text({value}, append)"]
            case "boolean":
                return [f"{indent}append(b'\\1' if {value} else b'\\0')"]
            case "bytes":
                return [f"{indent}long(len({value}), append)", f"{indent}append({value})"]
            case str() if kind in self._functions:
                return [f"{indent}{self._functions[kind]}({value}, append)"]
            case ["null", other]:
                inner = self._write(other, value, depth + 1)
                return [
                    f"{indent}if {value} is None:",
                    f"{indent}    append(b'\\0')",
                    f"{indent}else:",
                    f"{indent}    append(b'\\2')",
                    *inner,
                ]
            case {"type": "array", "items": items}:
                each = f"item{depth}"
                inner = self._write(items, each, depth + 2)
                return [
                    f"{indent}if {value}:",
                    f"{indent}    long(len({value}), append)",
                    f"{indent}    for {each} in {value}:",
                    *inner,
                    f"{indent}append(b'\\0')",
                ]
            case {"type": "enum", "name": name, "symbols": symbols}:
                self.enums[name] = {symbol: index for index, symbol in enumerate(symbols)}
                return [f"{indent}long(ENUMS[{name!r}][{value}], append)"]
            case {"type": "record"}:
                return [f"{indent}{self.record(kind)}({value}, append)"]
            case {"type": str(plain)}:  # a logical type: written as what it is made of
                return self._write(plain, value, depth)
            case _:
                raise TypeError(f"no encoder for {kind!r}")
