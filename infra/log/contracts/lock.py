"""Schema ids: given once, never changed, never reused."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import RecordSchema, parse

from contracts.lock import ROOT, Entry, Lock, Schema, read_lock
from infra.log.contracts import generator
from infra.log.contracts.schemas import ContractError, SchemaFile, references, schema_files, schemas_of_topics

LOCK_FILE = "schemas.lock.json"


def lock(root: Path = ROOT) -> list[Entry]:
    """Give ids to the subjects' new versions and write the lock. Returns the new entries.

    Raises ContractError where a locked schema was changed or removed, or a new version is not compatible.
    """
    held = read_lock(root / LOCK_FILE)
    wrong = [*references(schema_files(root), schemas_of_topics(root)), *broken(held, root)]
    wrong = wrong or list(incompatibilities(extended(held, root)))
    if wrong:
        raise ContractError("\n".join(wrong))
    _write(root / LOCK_FILE, extended(held, root).entries)
    return missing(held, root)


def extended(held: Lock, root: Path = ROOT) -> Lock:
    """The lock with the missing entries; each entry has the current file of its version."""
    files = _by_version(root)
    entries = (*held.entries, *missing(held, root))
    return Lock((replace(entry, file=files[entry.type, entry.version].file) for entry in entries), root)


def missing(held: Lock, root: Path = ROOT) -> list[Entry]:
    """What the files and the catalogue ask for and the lock does not hold, with the next free ids."""
    ids = {(entry.type, entry.version): entry.id for entry in held.entries}
    locked = {(entry.subject, entry.version) for entry in held.entries}
    files, new = schema_files(root), []
    for topic, stems in schemas_of_topics(root).items():
        for file in (file for stem in stems for file in files.get(stem, ())):
            if (f"{topic}-{file.type}", file.version) not in locked:
                # One schema in several topics is one id, as in a Confluent registry.
                schema_id = ids.setdefault((file.type, file.version), max(ids.values(), default=0) + 1)
                own = (file.type, file.file, file.fingerprint)
                new.append(Entry(f"{topic}-{file.type}", file.version, schema_id, *own))
    return new


def broken(held: Lock, root: Path = ROOT) -> Iterator[str]:
    """What was locked and no longer is as it was, in words."""
    files = _by_version(root)
    stems = schemas_of_topics(root)
    for entry in held.entries:
        file = files.get((entry.type, entry.version))
        if file is None:
            yield f"{_words(entry)} is locked, but its schema is gone: restore it"
        elif file.stem not in stems.get(entry.topic, ()):
            yield f"{_words(entry)} is locked, but topics.yaml no longer lists {file.stem} there"
        elif file.fingerprint != entry.fingerprint:
            keep, following = f"{file.stem}.v{entry.version}.avsc", entry.version + 1
            yield (
                f"{_words(entry)} is locked, and {file.file} was changed since. "
                f"Keep the old schema as {keep}; {file.stem}.avsc is then version {following}"
            )


def stale(held: Lock, root: Path = ROOT) -> Iterator[str]:
    """What the lock does not hold yet, in words."""
    for entry in missing(held, root):
        yield f"{_words(entry)} is not locked yet: run `./daybook contracts lock`"
    files = _by_version(root)
    for entry in held.entries:
        file = files.get((entry.type, entry.version))
        if file is not None and file.file != entry.file:
            yield f"{_words(entry)} now stands in another file: run `./daybook contracts lock`"


def _by_version(root: Path) -> dict[tuple[str, int], SchemaFile]:
    return {(file.type, file.version): file for versions in schema_files(root).values() for file in versions}


def _words(entry: Entry) -> str:
    return f"{entry.subject} version {entry.version} (id {entry.id})"


def _write(path: Path, entries: tuple[Entry, ...]) -> None:
    ordered = sorted(entries, key=lambda entry: (entry.id, entry.subject))
    rows = (msgspec.json.format(msgspec.json.encode(asdict(entry)), indent=0) for entry in ordered)
    path.write_bytes(b'{"schemas": [\n  ' + b",\n  ".join(rows) + b"\n]}\n")


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
    reasons = list(_field_reasons(now, then))
    result = ReaderWriterCompatibilityChecker().get_compatibility(now, then)
    if not reasons and result.compatibility is not SchemaCompatibilityType.compatible:
        reasons = sorted(result.messages)
    return reasons


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


def problems(root: Path = ROOT) -> list[str]:
    """What is wrong with the contracts, in words. Raises ContractError on unusable files."""
    lock = read_lock(root / LOCK_FILE)
    unknown = list(references(schema_files(root), schemas_of_topics(root)))
    if unknown:
        return unknown
    changed = list(broken(lock, root))
    if changed:
        return changed
    return [*generator.stale(root), *stale(lock, root), *incompatibilities(extended(lock, root))]
