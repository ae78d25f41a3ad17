"""The code speaks the field's words: `words.toml` bans the others, and no module is named by a participle."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.test_shape import CODE, ROOMS, ROOT, modules

RULES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
ALLOWED: Sequence[str] = [*RULES["elsewhere"], *RULES["generated"], *RULES["fingerprinted"]]
PARTICIPLE = re.compile(r"(^|_)[a-z]{2,}(ing|ed)$")


def identifiers(text: str) -> Iterator[str]:
    """Every name of the source, also in f-strings; no words of strings and comments."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.string
        elif token.type == tokenize.STRING and "f" in token.string.partition('"')[0].lower():
            tree = ast.parse(f"({token.string})")
            yield from (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def banned(path: str, text: str, words: Mapping[str, Sequence[str]]) -> set[str]:
    """The banned words of a file."""
    if any(fnmatch(path, glob) for glob in ALLOWED):
        return set()
    return {
        name
        for name in identifiers(text)
        if name in words and not any(fnmatch(path, glob) for glob in words[name])
    }


def participles(paths: Iterable[str]) -> set[str]:
    """The modules named by a participle instead of a noun."""
    nouns, rooms = set(RULES["module_nouns"]), RULES["elsewhere"]
    return {
        path
        for path in paths
        if (stem := Path(path).stem) not in nouns
        and PARTICIPLE.search(stem)
        and not any(fnmatch(path, glob) for glob in rooms)
    }


def relative(*rooms: str) -> Iterator[str]:
    return (str(path.relative_to(ROOT)) for path in modules(*rooms))


def test_no_file_uses_a_banned_word() -> None:
    uses = {path: banned(path, (ROOT / path).read_text("utf-8"), RULES["words"]) for path in relative(*ROOMS)}
    assert {path: words for path, words in uses.items() if words} == {}


def test_no_module_is_named_by_a_participle() -> None:
    assert participles(relative(*CODE)) == set()


def test_every_exception_of_a_word_is_needed() -> None:
    """Every listed file uses the word."""
    unused = [
        (word, glob)
        for word, globs in RULES["words"].items()
        for glob in globs
        if not any(
            word in set(identifiers((ROOT / path).read_text("utf-8")))
            for path in relative(*ROOMS)
            if fnmatch(path, glob)
        )
    ]
    assert unused == []


@pytest.mark.parametrize("word", RULES["words"])
def test_a_banned_word_is_seen(word: str) -> None:
    for text in (f"{word} = 1\n", f"def f({word}): ...\n", f'x = f"{{{word}}}"\n', f"x.{word}\n"):
        assert banned("services/edge/app.py", text, RULES["words"]) == {word}
    assert banned("services/edge/app.py", f'x = "{word}"  # {word}\n', RULES["words"]) == set()


def test_a_module_named_by_a_participle_is_seen() -> None:
    paths = ["services/edge/serving.py", "services/order/settled.py", "services/projection/engine/parking.py"]
    assert participles(paths) == set(paths[:2])
