"""Every package has one tree of errors, printed in its docstring."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.architecture.test_shape import ROOT

# A package, and the base of its errors; None where it has none.
BASES: dict[str, str | None] = {
    "analytics": "AnalyticsError",
    "contracts": None,
    "infra": "DaybookError",
    "services/edge": "EdgeError",
    "services/inventory": None,
    "services/kernel": "KernelError",
    "services/order": None,
    "services/projection": "ProjectionError",
}
# A fold is part of its read model's fingerprint: another base would make every shop rebuild its orders.
FINGERPRINTED = {"NeverPlaced"}
# They interrupt a process rather than report something.
SIGNALS = {"StopRequested"}


def classes(folder: Path) -> dict[str, list[str]]:
    """The bases of every public class of the package."""
    return {
        node.name: [ast.unparse(base) for base in node.bases]
        for module in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def is_error(name: str, bases: Mapping[str, list[str]]) -> bool:
    builtin = getattr(builtins, name, None)
    if isinstance(builtin, type):
        return issubclass(builtin, BaseException)
    return any(is_error(base, bases) for base in bases.get(name, []))


def drawn(name: str, bases: Mapping[str, list[str]], indent: str = "") -> Iterator[str]:
    """The tree below a class, a line each."""
    children = sorted(child for child, parents in bases.items() if parents[:1] == [name])
    for child in children:
        last = child == children[-1]
        yield f"{indent}{'└── ' if last else '├── '}{child}"
        yield from drawn(child, bases, f"{indent}{'    ' if last else '│   '}")


def strays(base: str | None, bases: Mapping[str, list[str]]) -> set[str]:
    """Errors of the package outside its tree. A foreign base, like HTTPException, counts as one."""
    below = {line.rpartition(" ")[2] for line in drawn(base, bases)} | {base} if base else set()
    return {name for name in bases if is_error(name, bases)} - below - SIGNALS - FINGERPRINTED


@pytest.mark.parametrize("package", BASES)
def test_the_docstring_shows_the_whole_tree(package: str) -> None:
    base, bases = BASES[package], classes(ROOT / package)
    assert strays(base, bases) == set()
    docstring = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))) or ""
    assert base is None or "\n".join([base, *drawn(base, bases)]) in docstring


def test_an_error_outside_the_tree_is_seen() -> None:
    bases = {"Base": ["Exception"], "Of": ["Base"], "Below": ["Of", "KeyError"], "Stray": ["ValueError"]}
    assert strays("Base", bases) == {"Stray"}
    assert list(drawn("Base", bases)) == ["└── Of", "    └── Below"]
