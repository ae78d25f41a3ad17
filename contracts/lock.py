"""The lock of the schemas: which version of which subject has which id. Standard library only."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
KERNEL = "daybook.kernel."
Schema = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One version of one subject (`<topic>-<full record name>`).

    `file` is relative to `contracts/`, `fingerprint` the SHA-256 of Avro's parsing canonical form.
    A schema used in several topics has one id under several subjects.
    """

    subject: str
    version: int
    id: int
    type: str
    file: str
    fingerprint: str

    @property
    def topic(self) -> str:
        return self.subject.removesuffix(f"-{self.type}")


class Lock:
    """Finds entries by subject, id and type. Every method raises KeyError for an unknown key."""

    def __init__(self, entries: Iterable[Entry], root: Path = ROOT) -> None:
        self.entries = tuple(entries)
        self._root = root

    def schema(self, schema_id: int) -> Schema:
        """Returns the Avro schema of an id, parsed from its file."""
        schema: Schema = json.loads(self.text(schema_id))
        return schema

    def text(self, schema_id: int) -> str:
        return (self._root / self._by_id[schema_id].file).read_text("utf-8")

    def id_of(self, subject: str) -> int:
        """Returns the id of the subject's newest version."""
        return self.versions(subject)[-1].id

    def subjects(self) -> tuple[str, ...]:
        return tuple(self._by_subject)

    def versions(self, subject: str) -> tuple[Entry, ...]:
        """Returns the versions of a subject, oldest first."""
        return tuple(self._by_subject[subject])

    def version(self, schema_id: int) -> int:
        return self._by_id[schema_id].version

    def type_of(self, schema_id: int) -> str:
        """Returns the full record name of an id."""
        return self._by_id[schema_id].type

    def ids(self, type_name: str) -> tuple[int, ...]:
        """Returns the ids of a record type, oldest version first."""
        return self._by_type[type_name]

    def topic_of(self, type_name: str) -> str:
        """Returns the topic of an event, or the input of a command. Kernel records have none: KeyError."""
        return self._topics_by_type[type_name]

    @cached_property
    def _by_id(self) -> dict[int, Entry]:
        return {entry.id: entry for entry in self.entries}

    @cached_property
    def _by_subject(self) -> dict[str, list[Entry]]:
        groups: dict[str, list[Entry]] = {}
        for entry in sorted(self.entries, key=lambda entry: (entry.subject, entry.version)):
            groups.setdefault(entry.subject, []).append(entry)
        return groups

    @cached_property
    def _by_type(self) -> dict[str, tuple[int, ...]]:
        groups: dict[str, dict[int, int]] = {}
        for entry in self.entries:
            groups.setdefault(entry.type, {})[entry.version] = entry.id
        return {name: tuple(ids[version] for version in sorted(ids)) for name, ids in groups.items()}

    @cached_property
    def _topics_by_type(self) -> dict[str, str]:
        groups: dict[str, set[str]] = {}
        for entry in self.entries:
            if entry.topic.endswith((".inbox", ".commands", ".events")) and not entry.type.startswith(KERNEL):
                groups.setdefault(entry.type, set()).add(entry.topic)
        topics_of_types = {name: _without_earlier_input(topics) for name, topics in groups.items()}
        return {name: topic for name, (topic, *others) in topics_of_types.items() if not others}


def _without_earlier_input(topics: set[str]) -> list[str]:
    """Removes `<service>.commands` if the type is also in the inbox: workers wrote there before there was an inbox."""
    services = {topic.removesuffix(".inbox") for topic in topics if topic.endswith(".inbox")}
    return [topic for topic in topics if topic.removesuffix(".commands") not in services]


def read_lock(path: Path) -> Lock:
    """Reads the lock in `path`; its schemas are in the same folder. It is empty if the file does not exist yet."""
    entries = json.loads(path.read_text("utf-8"))["schemas"] if path.exists() else []
    return Lock((Entry(**entry) for entry in entries), path.parent)


@cache
def load_lock() -> Lock:
    """Returns the committed lock; reads it once."""
    return read_lock(ROOT / "schemas.lock.json")


def plain(schema: Any) -> Any:
    """The schema without logical types: fastavro would make slow objects of plain integers."""
    match schema:
        case dict():
            return {name: plain(part) for name, part in schema.items() if name != "logicalType"}
        case list():
            return [plain(part) for part in schema]
        case _:
            return schema
