"""One name, one meaning: no two public classes have the same name."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
TREES = ("contracts", "services", "analytics", "infra")


def shared(paths: Iterable[Path]) -> dict[str, list[str]]:
    """The modules of each public class name that several modules define."""
    owners: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(path.name)
    return {name: files for name, files in owners.items() if len(files) > 1}


def test_no_two_public_classes_have_one_name() -> None:
    """The classes that `words.toml` lists are exempt."""
    twice = shared(path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py")))
    allowed = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))["shared_classes"]
    assert sorted(twice) == sorted(allowed)


def test_a_name_that_is_taken_is_found(tmp_path: Path) -> None:
    for name, text in (
        ("a", "class Line: ..."),
        ("b", "class Line: ...\nclass _Own: ..."),
        ("c", "class _Own: ..."),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    assert shared(sorted(tmp_path.iterdir())) == {"Line": ["a.py", "b.py"]}
