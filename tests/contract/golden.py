"""Golden records: for every locked schema a framed value, and what it must be read as, for ever.

`python -m tests.contract.golden` writes the pairs that are missing; it never touches one that exists.
"""

import json
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_writer

from contracts.lock import load_lock
from services.kernel.record.codec import FRAME, decode

FOLDER = Path(__file__).parent / "golden"


def names() -> dict[str, int]:
    """The stem of each pair and the schema id of its value."""
    lock = load_lock()
    return {f"{entry.type}.v{entry.version}": entry.id for entry in lock.entries}


def as_json(record: Any) -> str:
    """A record of the newest version as text: bytes in hexadecimal, times and money as integers."""
    return json.dumps(asdict(record), default=bytes.hex, ensure_ascii=False, indent=1) + "\n"


def write_missing() -> list[str]:
    """Writes the pairs that do not exist yet. Returns their names."""
    new = [name for name in names() if not (FOLDER / f"{name}.avro").exists()]
    for name in new:
        value = _value(names()[name])
        (FOLDER / f"{name}.avro").write_bytes(value)
        (FOLDER / f"{name}.json").write_text(as_json(decode(value)), "utf-8")
    return new


def _value(schema_id: int) -> bytes:
    out = BytesIO(FRAME.pack(0, schema_id))
    out.seek(FRAME.size)
    schema = load_lock().schema(schema_id)
    schemaless_writer(out, parse_schema(schema), _sample(schema, "", 0))
    return out.getvalue()


def _sample(schema: Any, name: str, number: int) -> Any:
    """A value that is different for each field of a record."""
    match schema:
        case {"type": "record", "fields": fields}:
            return {
                field["name"]: _sample(field["type"], field["name"], 10 * number + position)
                for position, field in enumerate(fields, start=1)
            }
        case {"type": "array", "items": items}:
            return [_sample(items, name, number + index) for index in (1, 2)]
        case {"type": "enum", "symbols": symbols}:
            return symbols[number % len(symbols)]
        case {"type": "long", "logicalType": "timestamp-micros"}:
            return 1_291_191_960_000_000 + number
        case ["null", other]:
            return _sample(other, name, number)
        case "string":
            return f"{name} {number} é"
        case "long":
            return 2_550_000 * number
        case "int":
            return number
        case "boolean":
            return number % 2 == 1
        case "bytes":
            return bytes([0, number % 256, 255])
        case _:
            raise TypeError(f"no sample for {schema!r}")


if __name__ == "__main__":
    print("\n".join(write_missing()) or "nothing is missing")
