"""The schema files: which exist, which version each one is, in which topics they stand."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml
from fastavro.schema import to_parsing_canonical_form

from contracts.lock import ROOT, Schema
from infra.base.errors import DaybookError

CATALOGUE = "topics.yaml"
_OLDER = re.compile(r"(?P<stem>.+)\.v(?P<version>\d+)\.avsc")


class ContractError(DaybookError):
    """Schemas and catalogue do not fit together; the text names the problem and its repair."""


@dataclass(frozen=True)
class SchemaFile:
    """One version of one record. `OrderPlaced.v1.avsc` is version 1; `OrderPlaced.avsc` is the newest one."""

    stem: str
    version: int
    file: str
    schema: Schema

    @property
    def type(self) -> str:
        return f"{self.schema['namespace']}.{self.schema['name']}"

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.schema)


def fingerprint(schema: Schema) -> str:
    """SHA-256 of Avro's parsing canonical form, as hexadecimal digits."""
    return hashlib.sha256(to_parsing_canonical_form(schema).encode()).hexdigest()


def schema_files(root: Path = ROOT) -> dict[str, list[SchemaFile]]:
    """The versions of every record, oldest first, by stem (`order/OrderPlaced`).

    Raises ContractError where versions are not 1…n or a file's record has another name than the file.
    """
    files: dict[str, list[SchemaFile]] = {}
    for path in sorted(root.glob("*/*.avsc")):
        older = _OLDER.fullmatch(path.name)
        stem = f"{path.parent.name}/{older['stem'] if older else path.stem}"
        version = int(older["version"]) if older else 0
        schema = msgspec.json.decode(path.read_bytes())
        files.setdefault(stem, []).append(
            SchemaFile(stem, version, f"{path.parent.name}/{path.name}", schema)
        )
    return {stem: _numbered(stem, files) for stem, files in files.items()}


def _numbered(stem: str, files: list[SchemaFile]) -> list[SchemaFile]:
    older = sorted((file for file in files if file.version), key=lambda file: file.version)
    newest = [file for file in files if not file.version]
    if not newest or [file.version for file in older] != list(range(1, len(older) + 1)):
        raise ContractError(
            f"{stem}: the versions must be {stem}.v1.avsc, .v2.avsc, … and the newest {stem}.avsc"
        )
    expected = f"daybook.{stem.replace('/', '.')}"
    for file in files:
        if file.type != expected:
            raise ContractError(f"{file.file} must hold the record {expected}, not {file.type}")
    return [*older, SchemaFile(stem, len(older) + 1, newest[0].file, newest[0].schema)]


def schemas_of_topics(root: Path = ROOT) -> dict[str, list[str]]:
    """The stems of each topic, as `topics.yaml` lists them."""
    catalogue = yaml.safe_load((root / CATALOGUE).read_text("utf-8"))
    return {topic: list(entry["schemas"]) for topic, entry in catalogue["topics"].items()}


def references(files: Mapping[str, list[SchemaFile]], topics: Mapping[str, list[str]]) -> Iterator[str]:
    """What is wrong between the catalogue and the files, in words."""
    used = {stem for stems in topics.values() for stem in stems}
    for topic, stems in topics.items():
        for stem in stems:
            if stem not in files:
                yield f"{CATALOGUE}: {topic} lists {stem}, but contracts/{stem}.avsc does not exist"
    for stem in files:
        if stem not in used:
            yield f"contracts/{stem}.avsc stands in no topic: list it in {CATALOGUE} or remove the file"
