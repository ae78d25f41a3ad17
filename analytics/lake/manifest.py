"""What a lake is: the parts that count and how far they reach."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from analytics.errors import AnalyticsError
from analytics.journal import NO_DECISIONS, RecordedDecisions
from analytics.offsets import Offsets
from contracts.lock import Lock

MANIFEST = "manifest.json"
REBUILDING = "rebuilding.json"
FORM = 2  # 1: without what each record is by itself
NO_SCHEMA = "none"
"""Stands for the schema id of a record that has none."""


class NoLake(AnalyticsError):
    """There is no lake in the folder yet."""


class LakeDamaged(AnalyticsError):
    """A part is not as it was written."""


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
    written. `retired` parts hold nothing that `parts` do not; they wait for readers that still use them.
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
    """The lake's manifest as it is now. Raises NoLake, also for a lake of an older form."""
    try:
        content = msgspec.json.decode((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise NoLake(f"no lake in {folder}: `./daybook analytics lake update` makes one") from None
    if content.pop("form", 1) != FORM:
        raise NoLake(f"the lake in {folder} is of an older form: `./daybook analytics lake update`")
    content["ends"] = {
        topic: {int(number): offset for number, offset in partitions.items()}
        for topic, partitions in content["ends"].items()
    }
    content["decisions"] = RecordedDecisions(
        {(*subject,): verdict for *subject, verdict in content["decisions"]["verdicts"]},
        {topic: frozenset(epochs) for topic, epochs in content["decisions"]["epochs"].items()},
    )
    content["parts"] = tuple(Part(**part) for part in content["parts"])
    return Manifest(**content | {"retired": tuple(content["retired"])})


def write_manifest(manifest: Manifest, file: Path) -> None:
    """Put it in the place of the one before, whole or not at all."""
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
    """Of all schemas: changes with every new one."""
    identities = sorted((entry.subject, entry.version, entry.id, entry.fingerprint) for entry in lock.entries)
    spaced = msgspec.json.format(msgspec.json.encode(identities), indent=0)
    return hashlib.sha256(spaced).hexdigest()


def part_folder(folder: Path, name: str) -> Path:
    return folder / "parts" / f"part={name}"


def size(part: Path) -> int:
    """Bytes of the Parquet files in a part."""
    return sum(file.stat().st_size for file in part.rglob("*.parquet"))


def check_part(folder: Path, part: Part) -> None:
    """Raise LakeDamaged where files are missing or cut."""
    bytes_found = size(part_folder(folder, part.name))
    if bytes_found != part.bytes:
        raise LakeDamaged(
            f"part {part.name} has {bytes_found} bytes and had {part.bytes}: "
            "`./daybook analytics lake rebuild` copies the log anew"
        )
