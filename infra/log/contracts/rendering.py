"""Python text for generated modules, in the form that the formatter leaves as it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from contracts.lock import Schema
from infra.log.contracts.schemas import ContractError

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
    name, fields = schema["name"], sorted(schema["fields"], key=lambda each: "default" in each)
    lines = [
        "",
        "@dataclass(frozen=True)",
        f"class {name}:",
        f'    """{schema.get("doc", name)}"""',
        "",
        f'    TYPE: ClassVar[str] = "{schema["namespace"]}.{name}"',
        "",
        *(_field(each) for each in fields),
        "",
    ]
    return "\n".join(lines)


def render_alias(schema: Schema) -> str:
    symbols = ", ".join(f'"{symbol}"' for symbol in schema["symbols"])
    return f"{schema['name']}: TypeAlias = Literal[{symbols}]\n"


def render_union(name: str, members: Sequence[str]) -> str:
    line = f"{name}: TypeAlias = {' | '.join(members)}"
    if len(line) <= WIDTH:
        return f"{line}\n"
    wide = f"    {' | '.join(members)}"
    inner = wide if len(wide) <= WIDTH else "    " + "\n    | ".join(members)
    return f"{name}: TypeAlias = (\n{inner}\n)\n"


def render_registry(modules: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """`contracts/records.py`: every record that stands in a topic by its full name, and its encoder by class."""
    packages = sorted({package for package, _, _ in modules})
    imports = [(package, name) for package, name, _ in modules]
    imports = sorted({*imports, *((package, "encoders") for package in packages)})
    lines = [f'"""{HEADER}"""', "", "from __future__ import annotations", ""]
    lines += ["from collections.abc import Callable", "from typing import Any", ""]
    lines += [f"from contracts.{package} import {name} as {package}_{name}" for package, name in imports]
    lines += ["", "RECORDS: dict[str, type] = {", "    record.TYPE: record", "    for record in ("]
    lines += [f"        {package}_{name}.{record}," for package, name, top in modules for record in top]
    lines += ["    )", "}", "", "ENCODERS: dict[type, Callable[[Any], bytes]] = {"]
    return "\n".join([*lines, *(f"    **{package}_encoders.ENCODERS," for package in packages), "}", ""])


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
    comment = " ".join(filter(None, (field.get("doc"), "(Micros.)" if _is_time(field["type"]) else None)))
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


def _is_time(schema: Any) -> bool:
    return "timestamp-micros" in str(schema) and "items" not in str(schema)
