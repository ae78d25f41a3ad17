"""Schema ids: given once, never changed, never reused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from contracts.lock import ROOT, Entry, Lock, read_lock
from infra.log.contracts.compatibility import incompatibilities
from infra.log.contracts.schemas import ContractError, SchemaFile, references, schema_files, schemas_of_topics

LOCK_FILE = "schemas.lock.json"


def lock(root: Path = ROOT) -> list[Entry]:
    """Give ids to the subjects' new versions and write the lock; answers the new entries.

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
    """The lock as it would be with what is missing, each entry with the file its version stands in now."""
    files = _by_version(root)
    entries = (*held.entries, *missing(held, root))
    return Lock((replace(each, file=files[each.type, each.version].file) for each in entries), root)


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
                new.append(_entry(topic, file, schema_id))
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


def _entry(topic: str, file: SchemaFile, schema_id: int) -> Entry:
    return Entry(f"{topic}-{file.type}", file.version, schema_id, file.type, file.file, file.fingerprint)


def _write(path: Path, entries: tuple[Entry, ...]) -> None:
    ordered = sorted(entries, key=lambda each: (each.id, each.subject))
    rows = (msgspec.json.format(msgspec.json.encode(asdict(entry)), indent=0) for entry in ordered)
    path.write_bytes(b'{"schemas": [\n  ' + b",\n  ".join(rows) + b"\n]}\n")
