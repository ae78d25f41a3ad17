"""An allowlist of imports for each room, checked in the syntax tree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = ("contracts", "services", "analytics", "infra")
# What reaches the world without an import.
IMPURE = frozenset(
    {"open", "exec", "eval", "compile", "input", "print", "globals", "__import__", "breakpoint"}
)


@dataclass(frozen=True)
class Room:
    """What one room may import; `allowed` are modules, and names as `module:name`."""

    name: str
    allowed: frozenset[str]
    pure: bool

    def lets_in(self, module: str, name: str | None) -> bool:
        """Whether `import module`, or `from module import name`, may stand here."""
        if name is not None and f"{module}:{name}" in self.allowed:
            return True
        whole = module if name is None else f"{module}.{name}"
        if self.pure:
            return not {module, whole}.isdisjoint(self.allowed) or room_of(module) == self
        if (target := room_of(whole)) is not None:
            return target == self or target.name in self.allowed
        return any(matches(entry, module) for entry in self.allowed)


def matches(pattern: str, module: str) -> bool:
    """Whether the module is that of the pattern, or below it."""
    expression = re.escape(pattern).replace(r"\*", "[^.]+")
    return re.match(rf"{expression}(\.|$)", module) is not None


@cache
def rooms() -> tuple[Room, ...]:
    tables = tomllib.loads((ROOT / "tests/architecture/imports.toml").read_text("utf-8"))
    return tuple(
        Room(
            name,
            frozenset({"__future__", *(entry for kind in KINDS for entry in rules.get(kind, ()))}),
            rules.get("pure", False),
        )
        for name, rules in tables.items()
    )


KINDS = ("standard", "packages", "rooms")


@cache
def room_of(module: str) -> Room | None:
    """The room with the longest name that fits."""
    fitting = [room for room in rooms() if matches(room.name, module)]
    return max(fitting, key=lambda room: room.name.count("."), default=None)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def refused(module: str, source: str) -> Iterator[str]:
    """The forbidden imports and calls of the module, as `module:line: name`."""
    room = room_of(module)
    assert room is not None, f"{module} is in no room: see tests/architecture/imports.toml"
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                forbidden = [alias.name for alias in names if not room.lets_in(alias.name, None)]
            case ast.ImportFrom(module=None) | ast.ImportFrom(level=1 | 2 | 3):
                forbidden = ["a relative import"]
            case ast.ImportFrom(module=str(source_module), names=names):
                forbidden = [
                    f"{source_module}.{alias.name}"
                    for alias in names
                    if not room.lets_in(source_module, alias.name)
                ]
            case ast.Name(id=name) if room.pure and name in IMPURE:
                forbidden = [name]
            case _:
                continue
        yield from (f"{module}:{getattr(node, 'lineno', 0)}: {name_used}" for name_used in forbidden)


@cache
def files() -> list[Path]:
    return sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))


def test_every_import_is_allowed() -> None:
    assert [line for path in files() for line in refused(module_of(path), path.read_text("utf-8"))] == []


def test_every_room_is_somewhere() -> None:
    lived_in = {room.name for path in files() if (room := room_of(module_of(path))) is not None}
    assert {room.name for room in rooms()} == lived_in


LAYERS = {
    "infra": ("base", "log", "stack", "dr", "lab", "cli"),
    "services.kernel": ("model", "record", "log", "worker"),
}


def arrows_back(package: str, layers: tuple[str, ...]) -> list[str]:
    """The rules that let a lower layer of the package import a higher one."""

    def layer(name: str) -> int | None:
        below = name.removeprefix(f"{package}.").split(".")[0]
        return layers.index(below) if name.startswith(f"{package}.") and below in layers else None

    return [
        f"{room.name} -> {entry}"
        for room in rooms()
        for entry in sorted(room.allowed)
        if (lower := layer(room.name)) is not None
        and (higher := layer(entry.partition(":")[0])) is not None
        and higher > lower
    ]


@pytest.mark.parametrize("package", LAYERS)
def test_no_layer_imports_one_above_it(package: str) -> None:
    assert arrows_back(package, LAYERS[package]) == []
    # the same rules with the layers turned round are refused
    assert arrows_back(package, LAYERS[package][::-1]) != []


@cache
def of_room(room: Room) -> Path:
    return next(path for path in files() if room_of(module_of(path)) == room)


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
@pytest.mark.parametrize(
    "line",
    [
        "import tests.stack",
        "import ftplib",
        "import requests",
        "from infra.lab.drills import rig",
        "from . import x",
    ],
)
def test_a_planted_import_is_refused(room: Room, line: str) -> None:
    if "infra.lab.drills" in {room.name, *room.allowed}:
        line = line.replace("infra.lab.drills import rig", "analytics.staging import orders")
    path = of_room(room)
    planted = f"{path.read_text('utf-8')}\n{line}\n"
    assert len([*refused(module_of(path), planted)]) == 1


PURE_PLANTS = (
    *("import datetime", "import os", "import socket", "import msgspec", "import random", "import time"),
    *("import asyncpg", "import confluent_kafka", "from services.kernel.worker.entities import Partition"),
    *("from uuid import uuid4", "import uuid", "from sys import stdout", "open('state')", "__import__('os')"),
)


@pytest.mark.parametrize("line", PURE_PLANTS)
@pytest.mark.parametrize(
    "module",
    [f"services/{name}.py" for name in ("order/domain/decider", "order/process", "inventory/process")],
)
def test_a_domain_knows_no_world(module: str, line: str) -> None:
    path = ROOT / module
    assert [*refused(module_of(path), path.read_text("utf-8"))] == []
    assert len([*refused(module_of(path), f"{path.read_text('utf-8')}\n{line}\n")]) == 1


def test_a_domain_cannot_see_the_order_of_a_map() -> None:
    path = ROOT / "services/inventory/domain/state.py"
    line = "from services.kernel.model.map import content_of"
    assert len([*refused(module_of(path), f"{path.read_text('utf-8')}\n{line}\n")]) == 1
