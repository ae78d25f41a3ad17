"""The manifest of a lake: its valid parts and the offsets up to which they are complete."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from analytics.errors import AnalyticsError
from analytics.log_rule import NO_DECISIONS, RecordedDecisions
from analytics.offsets import Offsets
from contracts.lock import Lock, load_lock

MANIFEST = "manifest.json"
REBUILDING = "rebuilding.json"
FORM = 2  # 1: without what each record is by itself
NO_SCHEMA = "none"
"""Stands for the schema id of a record that has none."""


class NoLake(AnalyticsError):
    """There is no lake in the folder yet."""


class LakeDamaged(AnalyticsError):
    """The files of a part have changed."""


@dataclass(frozen=True)
class Part:
    """A folder of Parquet files that never changes. `schemas`: schema id as text → records."""

    name: str
    bytes: int
    schemas: Mapping[str, int]

    @property
    def rows(self) -> int:
        return sum(self.schemas.values())


@dataclass(frozen=True)
class Manifest:
    """`ends` are exclusive: every committed record before them is in `parts`, once.

    `log` is the identity of each topic, `contracts` the fingerprint of the schemas known when it was last
    written. `retired` parts contain nothing that `parts` do not; they are kept for readers that still use them.
    `decisions` are those of `site.journal` at the last update.
    """

    generation: int
    checkpoint: str
    log: Mapping[str, str]
    ends: Offsets
    contracts: str
    parts: tuple[Part, ...] = ()
    retired: tuple[str, ...] = ()
    decisions: RecordedDecisions = NO_DECISIONS

    @property
    def schemas(self) -> Mapping[str, int]:
        """Schema id as text → records."""
        counts: dict[str, int] = {}
        for part in self.parts:
            for schema_id, rows in part.schemas.items():
                counts[schema_id] = counts.get(schema_id, 0) + rows
        return counts


def read_manifest(folder: Path) -> Manifest:
    """Returns the current manifest. Raises NoLake, also for a lake of an older form."""
    try:
        content = msgspec.json.decode((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise NoLake(f"no lake in {folder}: `./daybook analytics lake update` makes one") from None
    if content.pop("form", 1) != FORM:
        raise NoLake(f"the lake in {folder} is of an older form: `./daybook analytics lake update`")
    stored = content.pop("decisions")
    decisions = RecordedDecisions(
        {(*subject,): verdict for *subject, verdict in stored["verdicts"]},
        {topic: frozenset(epochs) for topic, epochs in stored["epochs"].items()},
    )
    return replace(msgspec.convert(content, Manifest, str_keys=True), decisions=decisions)


def write_manifest(manifest: Manifest, file: Path) -> None:
    """Replaces the manifest atomically."""
    decisions = {
        "verdicts": [[*subject, verdict] for subject, verdict in manifest.decisions.verdicts.items()],
        "epochs": {topic: sorted(epochs) for topic, epochs in manifest.decisions.epochs.items()},
    }
    content: dict[str, Any] = asdict(replace(manifest, decisions=NO_DECISIONS))
    content |= {"decisions": decisions, "form": FORM}
    beside = file.with_name(f".{file.name}.new")
    with beside.open("wb") as out:
        out.write(msgspec.json.format(msgspec.json.encode(content), indent=1))
        out.flush()
        os.fsync(out.fileno())
    beside.replace(file)


def fingerprint(lock: Lock) -> str:
    """Identifies all schemas: it changes with every new one."""
    identities = sorted((entry.subject, entry.version, entry.id, entry.fingerprint) for entry in lock.entries)
    spaced = msgspec.json.format(msgspec.json.encode(identities), indent=0)
    return hashlib.sha256(spaced).hexdigest()


def part_folder(folder: Path, name: str) -> Path:
    return folder / "parts" / f"part={name}"


def size(part: Path) -> int:
    """Bytes of the Parquet files in a part."""
    return sum(file.stat().st_size for file in part.rglob("*.parquet"))


def check_part(folder: Path, part: Part) -> None:
    """Raises LakeDamaged if files are missing or truncated."""
    bytes_found = size(part_folder(folder, part.name))
    if bytes_found != part.bytes:
        raise LakeDamaged(
            f"part {part.name} has {bytes_found} bytes and had {part.bytes}: "
            "`./daybook analytics lake rebuild` copies the log anew"
        )


def lake_report(lake: Manifest, folder: Path) -> str:
    """Shows up to which offsets the lake is complete, and its events by type and schema version."""
    lock = load_lock()
    rows, size = sum(part.rows for part in lake.parts), sum(part.bytes for part in lake.parts)
    same = "the same as now" if lake.contracts == fingerprint(lock) else "others than now"
    lines = [f"{folder}: {rows:,} records, {size / 1e6:,.1f} MB in {len(lake.parts)} parts"]
    lines += [
        f"complete to {topic}/{number}/{offset}"
        for topic, partitions in sorted(lake.ends.items())
        for number, offset in sorted(partitions.items())
    ]
    lines.append(f"written with contracts {lake.contracts[:12]}, {same}")
    lines += sorted(_counted(schema_id, rows, lock) for schema_id, rows in lake.schemas.items())
    return "\n".join(lines)


def _counted(schema_id: str, rows: int, lock: Lock) -> str:
    if schema_id == NO_SCHEMA:
        return f"{rows:>12,} without a schema id"
    try:
        name, version = lock.type_of(int(schema_id)), lock.version(int(schema_id))
    except KeyError:
        return f"{rows:>12,} of the unknown schema id {schema_id}"
    return f"{rows:>12,} {name} version {version}"
