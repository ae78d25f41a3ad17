"""A read model's fingerprint changes with what can change its rows."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from services.projection.engine.fingerprint import fingerprint

FOLDER = {
    "__init__.py": "",
    "fold.py": '"""Counts."""\n\nimport math\n\n\ndef fold(row, event, _):\n    return (row or 0) + 1\n',
    "store.py": "class Store:\n    pass\n",
    "schema.sql": "CREATE TABLE counts (key text PRIMARY KEY, version bigint NOT NULL);\n",
}
_names = itertools.count()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / f"counts_{next(_names)}"
    package.mkdir()
    for name, text in FOLDER.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return package


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("fold.py", "+ 1", "+ 2", True),
        ("store.py", "pass", "size = 1", True),
        ("schema.sql", "bigint", "int", True),
        ("fold.py", "Counts.", "Counts every event.", False),
        ("fold.py", "import math", "from math import pi  # unused", False),
        ("fold.py", "(row or 0) + 1", "((row or 0)\n        + 1)", False),
        ("schema.sql", "CREATE", "-- One row per key.\nCREATE", False),
    ],
)
def test_code_and_columns_count_and_words_do_not(
    folder: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before = fingerprint(folder.name)
    edited = folder / file
    edited.write_text(edited.read_text().replace(old, new))
    assert (fingerprint(folder.name) != before) is changes
