"""FULL_TRANSITIVE: of all versions of a subject, every one reads what every other one wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import msgspec
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import RecordSchema, parse

from contracts.lock import Lock, Schema


def incompatibilities(lock: Lock) -> Iterator[str]:
    """What is not compatible in the lock: subject, versions, field and reason, in words."""
    for subject in lock.subjects():
        versions = [(entry.version, lock.schema(entry.id)) for entry in lock.versions(subject)]
        for (reader_version, reader), (writer_version, writer) in permutations(versions, 2):
            for reason in reasons(reader, writer):
                yield f"{subject}: version {reader_version} cannot read version {writer_version}: {reason}"


def reasons(reader: Schema, writer: Schema) -> list[str]:
    """Why `reader` cannot read what `writer` wrote, field by field; empty when it can."""
    now, then = (parse(msgspec.json.encode(schema).decode()) for schema in (reader, writer))
    found = list(_field_reasons(now, then))
    result = ReaderWriterCompatibilityChecker().get_compatibility(now, then)
    if not found and result.compatibility is not SchemaCompatibilityType.compatible:
        found = sorted(result.messages)
    return found


def _field_reasons(reader: RecordSchema, writer: RecordSchema) -> Iterator[str]:
    """Each field alone: the checker loses the path inside unions, the field's name must not get lost."""
    for field in reader.fields:
        written = writer.fields_dict.get(field.name)
        if written is None:
            if not field.has_default:
                yield f"field {field.name} is missing there and has no default"
            continue
        if _logical_types(field.type.to_json()) != _logical_types(written.type.to_json()):
            yield f"field {field.name} changed its logical type, so the same bytes would mean something else"
        result = ReaderWriterCompatibilityChecker().get_compatibility(field.type, written.type)
        if result.compatibility is not SchemaCompatibilityType.compatible:
            for location in sorted(result.locations):
                path = ".".join([field.name, *_names(field.type, location.strip("/").split("/"))])
                yield f"field {path}: {_explained(result)}"


def _explained(result: Any) -> str:
    kinds = sorted({kind.value.replace("_", " ") for kind in result.incompatibilities})
    return f"{', '.join(kinds)} ({'; '.join(sorted(result.messages))})"


def _names(schema: Any, path: Sequence[str]) -> Iterator[str]:
    """The field names along the checker's path of keys and positions."""
    match path:
        case ["fields", position, *rest]:
            field = schema.fields[int(position)]
            yield field.name
            yield from _names(field.type, rest)
        case ["items", *rest]:
            yield from _names(schema.items, rest)
        case ["type", *rest]:
            yield from _names(schema, rest)


def _logical_types(schema: object) -> list[str]:
    """The logical types inside a field's own type, without those of records below it."""
    match schema:
        case {"logicalType": str() as name}:
            return [name]
        case {"type": "array", "items": items}:
            return _logical_types(items)
        case list():
            return [name for branch in schema for name in _logical_types(branch)]
        case _:
            return []
