"""The generator: frozen dataclasses and encoders from the newest schema of every record."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.lock import ROOT, Schema
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

    @property
    def alias(self) -> str:
        """The name under which `contracts/records.py` imports it."""
        return f"{self.package}_{self.name}"


def generate(root: Path = ROOT) -> dict[str, str]:
    """The text of every generated module, by its path below `contracts/`. Raises ContractError."""
    files, topics = schema_files(root), schemas_of_topics(root)
    wrong = list(references(files, topics))
    if wrong:
        raise ContractError("\n".join(wrong))
    modules = _place(files, topics)
    texts = {module.path: _render(module) for module in modules}
    return {**texts, "topics.py": render_topics(topics), "records.py": render_encoders(modules)}


def write(root: Path = ROOT) -> list[str]:
    """Write the generated modules that changed, and return their paths."""
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
        existing = elsewhere.get(name) or module.definitions.get(name)
        if existing is not None and existing != nested:
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
            for field in fields:
                yield from _definitions(field["type"])
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


_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HELPERS = ("LENGTHS", "array", "binary", "int32", "join", "long", "symbols")


def render_encoders(modules: Sequence[Module]) -> str:
    """`contracts/records.py`: the encoder of every record, and the records that stand in a topic."""
    defined = [(module, schema) for module in modules for schema in module.definitions.values()]
    repeated = [name for name, count in Counter(schema["name"] for _, schema in defined).items() if count > 1]
    if repeated:
        raise ContractError(
            f"two packages define {', '.join(repeated)}: give every record and enum its own name"
        )
    tables = [_table(schema) for _, schema in defined if schema["type"] == "enum"]
    functions = [_function(module.alias, schema) for module, schema in defined if schema["type"] == "record"]
    records = [(module.alias, name) for module in modules for name in module.top]
    entries = "".join(f"    {alias}.{name}: {_snake(name)},\n" for alias, name in records)
    encoders = f"\nENCODERS: dict[Any, Callable[[Any], bytes]] = {{\n{entries}}}\n"
    body = "\n".join([*tables, "", *functions, encoders])
    helpers = [name for name in _HELPERS if re.search(rf"(?<!\.)\b{name}\b", body)]
    head = f'"""{HEADER}"""\n# fmt: off\n\nfrom __future__ import annotations\n\n'
    head += "from collections.abc import Callable\nfrom typing import Any\n\n"
    head += f"from contracts.avro import {', '.join(helpers)}\n"
    head += "".join(
        f"from contracts.{module.package} import {module.name} as {module.alias}\n" for module in modules
    )
    by_name = "\nRECORDS: dict[str, type] = {record.TYPE: record for record in ENCODERS}  # by full name\n"
    return f"{head}\n{body}{by_name}"


def _table(schema: Schema) -> str:
    """The symbols of an enum, each encoded as its number."""
    names = ", ".join(f'"{symbol}"' for symbol in schema["symbols"])
    return f"{_constant(schema['name'])} = symbols({names})"


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


WIDTH = 110
HEADER = "Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."
PRIMITIVES = {
    "string": "str",
    "int": "int",
    "long": "int",
    "boolean": "bool",
    "bytes": "bytes",
    "double": "float",
}


def render_module(package: str, imported: Collection[str], parts: Sequence[str], union: str) -> str:
    """A module: its imports as its text needs them, then the records, then the union of all."""
    body = "\n".join(parts)
    typing = [name for name in ("ClassVar", "Literal", "TypeAlias") if name in body + union]
    imports = ["from dataclasses import dataclass", f"from typing import {', '.join(typing)}"]
    if imported:
        imports += ["", f"from contracts.{package}.events import {', '.join(sorted(imported))}"]
    text = f'"""{HEADER}"""\n\nfrom __future__ import annotations\n\n' + "\n".join(imports) + "\n\n" + body
    return text + (f"\n\n{union}" if union else "")


def render_class(schema: Schema) -> str:
    """A frozen dataclass. Fields with a default come last: Python asks for that, Avro does not mind."""
    name, fields = schema["name"], sorted(schema["fields"], key=lambda field: "default" in field)
    lines = [
        "",
        "@dataclass(frozen=True)",
        f"class {name}:",
        f'    """{schema.get("doc", name)}"""',
        "",
        f'    TYPE: ClassVar[str] = "{schema["namespace"]}.{name}"',
        "",
        *(_field(field) for field in fields),
        "",
    ]
    return "\n".join(lines)


def render_alias(schema: Schema) -> str:
    symbols = ", ".join(f'"{symbol}"' for symbol in schema["symbols"])
    line = f"{schema['name']}: TypeAlias = Literal[{symbols}]\n"
    return line if len(line) <= WIDTH else f"{schema['name']}: TypeAlias = Literal[\n    {symbols}\n]\n"


def render_union(name: str, members: Sequence[str]) -> str:
    line = f"{name}: TypeAlias = {' | '.join(members)}"
    if len(line) <= WIDTH:
        return f"{line}\n"
    wide = f"    {' | '.join(members)}"
    inner = wide if len(wide) <= WIDTH else "    " + "\n    | ".join(members)
    return f"{name}: TypeAlias = (\n{inner}\n)\n"


_INPUTS = """
    @property
    def inputs(self) -> tuple[str, str]:
        return self.inbox, self.commands
"""


def render_topics(names: Collection[str]) -> str:
    """`contracts/topics.py`: the topics of each service, by kind. A service is what has commands."""
    services: dict[str, list[str]] = {}
    for service, _, kind in (name.partition(".") for name in names):
        if f"{service}.commands" in names:
            services.setdefault(service, []).append(kind)
    kinds, *others = services.values()
    if any(other != kinds for other in others):
        raise ContractError(f"services have topics of different kinds, or in another order: {services}")
    lines = [f'"""{HEADER}"""', "", "from __future__ import annotations", "", "from typing import NamedTuple"]
    lines += [
        "",
        "",
        "class ServiceTopics(NamedTuple):",
        '    """The topics of one service; a worker executes its `inputs` in their order."""',
        "",
    ]
    lines += [*(f"    {kind}: str" for kind in kinds), _INPUTS, "", "TOPICS = {"]
    for service in services:
        topics = [f'        {kind}="{service}.{kind}",' for kind in kinds]
        lines += [f'    "{service}": ServiceTopics(', *topics, "    ),"]
    lines += ["}", ""]
    lines += ["SERVICE_OF = {topic: service for service, own in TOPICS.items() for topic in own}"]
    lines += ["INBOXES = frozenset(own.inbox for own in TOPICS.values())"]
    lines += ["INPUTS = frozenset(topic for own in TOPICS.values() for topic in own.inputs)"]
    return "\n".join([*lines, ""])


def _field(field: Schema) -> str:
    text = f"    {field['name']}: {_annotation(field['type'])}"
    if "default" in field:
        default = field["default"]
        text += f" = {() if default == [] else default!r}"
    kind = str(field["type"])
    micros = "(Micros.)" if "timestamp-micros" in kind and "items" not in kind else None
    comment = " ".join(filter(None, (field.get("doc"), micros)))
    if comment and len(f"{text}  # {comment}") > WIDTH:
        return f"    # {comment}\n{text}"
    return f"{text}  # {comment}" if comment else text


def _annotation(schema: Any) -> str:
    match schema:
        case str():
            return PRIMITIVES.get(schema) or schema.rpartition(".")[2]
        case ["null", other]:
            return f"{_annotation(other)} | None"
        case {"type": "array", "items": items}:
            return f"tuple[{_annotation(items)}, ...]"
        case {"type": "record" | "enum", "name": name}:
            return str(name)
        case {"type": str() as primitive}:
            return _annotation(primitive)
        case _:
            raise ContractError(f"the generator knows no Python type for {schema!r}")
