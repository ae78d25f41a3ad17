"""Python text of the encoders: one function per record, which joins the bytes of its fields.

It covers what the contracts use; any other type is a ContractError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from contracts.avro import long
from contracts.lock import Schema
from infra.log.contracts.rendering import HEADER
from infra.log.contracts.schemas import ContractError

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HELPERS = ("LENGTHS", "array", "binary", "int32", "join", "long")


def render_encoders(
    package: str, schemas: Sequence[tuple[str, Schema]], top: Sequence[tuple[str, str]]
) -> str:
    """The module `encoders.py` of a package.

    `schemas` are all its records and enums, each with the module that defines it; `top` are the records that
    stand in a topic, as module and name.
    """
    tables = [_table(schema) for _, schema in schemas if schema["type"] == "enum"]
    functions = [_function(module, schema) for module, schema in schemas if schema["type"] == "record"]
    entries = "".join(f"    {module}.{name}: {_snake(name)},\n" for module, name in top)
    body = "\n".join(
        [*tables, *functions, f"\nENCODERS: dict[type, Callable[[Any], bytes]] = {{\n{entries}}}\n"]
    )
    helpers = [name for name in _HELPERS if re.search(rf"(?<!\.)\b{name}\b", body)]
    modules = sorted({module for module, schema in schemas if schema["type"] == "record"})
    head = f'"""{HEADER}"""\n# fmt: off\n\nfrom __future__ import annotations\n\n'
    head += "from collections.abc import Callable\nfrom typing import Any\n\n"
    head += f"from contracts.avro import {', '.join(helpers)}\n"
    return f"{head}from contracts.{package} import {', '.join(modules)}\n\n{body}"


def _table(schema: Schema) -> str:
    """The symbols of an enum, each encoded as its number."""
    rows = "".join(
        f'    "{symbol}": {_literal(long(number))},\n' for number, symbol in enumerate(schema["symbols"])
    )
    return f"{_constant(schema['name'])} = {{\n{rows}}}\n"


def _literal(value: bytes) -> str:
    return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'


def _function(module: str, schema: Schema) -> str:
    head = f"\ndef {_snake(schema['name'])}(record: {module}.{schema['name']}) -> bytes:\n"
    parts = [_part(field["type"], f"record.{field['name']}") for field in schema["fields"]]
    if len(parts) == 1:
        return f"{head}    return {parts[0]}\n"
    lines = "".join(f"        {part},\n" for part in parts)
    return f"{head}    return join((\n{lines}    ))\n"


def _part(kind: Any, value: str) -> str:
    """The expression that makes the bytes of `value`, of schema `kind`."""
    match kind:
        case "int":
            return f"int32({value})"
        case "long":
            return f"long({value})"
        case "string":
            return f"LENGTHS[len(text := {value}.encode())] + text"
        case "boolean":
            return f'b"\\1" if {value} else b"\\0"'
        case "bytes":
            return f"binary({value})"
        case ["null", other] if " if " not in _part(other, value):
            return f'b"\\0" if {value} is None else b"\\2" + {_part(other, value)}'
        case {"type": "array", "items": items}:
            return f'array([{_part(items, "item")} for item in {value}]) if {value} else b"\\0"'
        case {"type": "enum", "name": str(name)}:
            return f"{_constant(name)}[{value}]"
        case {"type": "record", "name": str(name)}:
            return f"{_snake(name)}({value})"
        case {"type": str(plain)}:  # a logical type: written as what it is made of
            return _part(plain, value)
        case _:
            raise ContractError(f"the generator knows no encoder for {kind!r}")


def _snake(name: str) -> str:
    return _WORD.sub("_", name).lower()


def _constant(name: str) -> str:
    return _snake(name).upper()
