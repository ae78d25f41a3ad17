"""The generator: frozen dataclasses and encoders from the newest schema of every record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.lock import ROOT, Schema
from infra.log.contracts.encoders import render_encoders
from infra.log.contracts.rendering import (
    render_alias,
    render_class,
    render_module,
    render_registry,
    render_topics,
    render_union,
)
from infra.log.contracts.schemas import ContractError, SchemaFile, references, schema_files, schemas_of_topics


@dataclass
class Module:
    """One generated module: its records in the order of their first use, nested ones before their users."""

    package: str
    name: str
    definitions: dict[str, Schema] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    top: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{self.package}/{self.name}.py"


def generate(root: Path = ROOT) -> dict[str, str]:
    """The text of every generated module, by its path below `contracts/`. Raises ContractError."""
    files, topics = schema_files(root), schemas_of_topics(root)
    wrong = list(references(files, topics))
    if wrong:
        raise ContractError("\n".join(wrong))
    modules = _place(files, topics)
    texts = {module.path: _render(module) for module in modules}
    packages = {module.package for module in modules}
    texts |= {f"{package}/encoders.py": _encoders(package, modules) for package in sorted(packages)}
    texts["topics.py"] = render_topics(schemas_of_topics(root))
    return {**texts, "records.py": render_registry([(m.package, m.name, m.top) for m in modules])}


def write(root: Path = ROOT) -> list[str]:
    """Write the generated modules that changed; answers their paths."""
    changed = {path: text for path, text in generate(root).items() if _read(root / path) != text}
    for path, text in changed.items():
        (root / path).write_text(text, "utf-8")
    return list(changed)


def stale(root: Path = ROOT) -> Iterator[str]:
    """What is generated and not up to date, in words."""
    for path, text in generate(root).items():
        if _read(root / path) != text:
            yield f"contracts/{path} is not what the schemas say: run `./daybook contracts lock`"


def _read(path: Path) -> str | None:
    return path.read_text("utf-8") if path.exists() else None


def _place(files: Mapping[str, list[SchemaFile]], topics: Mapping[str, list[str]]) -> list[Module]:
    """Kernel records go to kernel/records.py, others to events.py or commands.py after their topic."""
    modules: dict[str, Module] = {}
    for topic, stems in sorted(topics.items(), key=lambda item: not item[0].endswith(".events")):
        for stem in stems:
            package = stem.partition("/")[0]
            name = "records" if package == "kernel" else topic.rpartition(".")[2]
            name = "commands" if name == "inbox" else name
            if name not in ("records", "events", "commands"):
                raise ContractError(
                    f"{stem} stands in {topic}: only kernel records stand outside *.events, *.commands and *.inbox"
                )
            module = modules.setdefault(f"{package}/{name}", Module(package, name))
            events = modules.get(f"{package}/events") if name == "commands" else None
            _add(module, events.definitions if events else {}, files[stem][-1].schema)
    return sorted(modules.values(), key=lambda module: module.path)


def _add(module: Module, elsewhere: Mapping[str, Schema], schema: Schema) -> None:
    for nested in _definitions(schema):
        name = nested["name"]
        known = elsewhere.get(name) or module.definitions.get(name)
        if known is not None and known != nested:
            raise ContractError(f"{name} has two shapes in contracts/{module.package}: one name is one shape")
        if name in elsewhere:
            module.imported.add(name)
        else:
            module.definitions[name] = nested
    if schema["name"] not in module.top:
        module.top.append(schema["name"])


def _definitions(schema: Any) -> Iterator[Schema]:
    """The records and enums inside a schema, nested ones first, the schema itself last."""
    match schema:
        case list():
            for branch in schema:
                yield from _definitions(branch)
        case {"type": "record", "fields": fields}:
            for each in fields:
                yield from _definitions(each["type"])
            yield schema
        case {"type": "enum"}:
            yield schema
        case {"type": "array", "items": items}:
            yield from _definitions(items)


def _render(module: Module) -> str:
    enums = [schema for schema in module.definitions.values() if schema["type"] == "enum"]
    records = [schema for schema in module.definitions.values() if schema["type"] == "record"]
    parts = [*map(render_alias, enums), *map(render_class, records)]
    singular = {"events": "Event", "commands": "Command"}.get(module.name)
    union = render_union(f"{module.package.capitalize()}{singular}", module.top) if singular else ""
    return render_module(module.package, module.imported, parts, union)


def _encoders(package: str, modules: Sequence[Module]) -> str:
    own = [module for module in modules if module.package == package]
    schemas = [(module.name, schema) for module in own for schema in module.definitions.values()]
    return render_encoders(package, schemas, [(module.name, name) for module in own for name in module.top])
