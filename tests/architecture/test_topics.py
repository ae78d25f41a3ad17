"""Topic names come from the catalogue: no code puts one together or takes one apart."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from contracts.topics import TOPICS

ROOT = Path(__file__).parents[2]
NAMES = frozenset(yaml.safe_load((ROOT / "contracts/topics.yaml").read_text("utf-8"))["topics"])
KINDS = frozenset(name.partition(".")[2] for name in NAMES)
OWNERS = frozenset(name.partition(".")[0] for name in NAMES)
KIND = re.compile(rf"\.({'|'.join(sorted(KINDS))})")
WHOLE = re.compile(rf"({'|'.join(sorted(OWNERS))})\.[a-z]+")
APART = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "split",
    "rsplit",
}
READERS = ("infra/log/contracts/",)  # what reads the catalogue itself


def made(source: str) -> Iterator[int]:
    """The lines that put a topic's name together, take one apart, or name one that the catalogue does not have."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.JoinedStr(values=parts):
                wrong = any(_joins(left, right) for left, right in pairwise(parts))
            case ast.BinOp(op=ast.Add(), right=ast.Constant(value=str(text))):
                wrong = KIND.fullmatch(text) is not None
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args) if attr in APART:
                wrong = "topic" in ast.unparse(value).lower() or any(_kind(arg) for arg in args)
            case ast.Constant(value=str(text)):
                wrong = WHOLE.fullmatch(text) is not None and text not in NAMES
            case _:
                continue
        if wrong:
            yield node.lineno


def _joins(left: ast.expr, right: ast.expr) -> bool:
    """Whether `{left}right` in an f-string is a service, a dot and a kind of topic."""
    match left, right:
        case ast.FormattedValue(value=value), ast.Constant(value=str(text)):
            owner = re.search(r"(service|aggregate\.name)$", ast.unparse(value)) is not None
            return KIND.fullmatch(text) is not None or (owner and text == ".")
        case _:
            return False


def _kind(argument: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and KIND.fullmatch(node.value)
        for node in ast.walk(argument)
    )


def test_topic_names_come_from_the_catalogue() -> None:
    spelled_out = [
        f"{path.relative_to(ROOT)}:{line}"
        for tree in ("services", "analytics", "infra")
        for path in sorted((ROOT / tree).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(READERS)
        for line in made(path.read_text("utf-8"))
    ]
    assert spelled_out == []


@pytest.mark.parametrize(
    "line",
    [
        "topic = f'{name}.events'",
        "topics = [f'{service}.{kind}' for kind in kinds]",
        "topic = name + '.commands'",
        "logs = [each for each in names if each.endswith('.events')]",
        "if record.topic().startswith(name): pass",
        "service = topic.partition('.')[0]",
        "topic = 'order.evnts'",
    ],
)
def test_a_planted_name_is_seen(line: str) -> None:
    assert list(made(f"x = 1\n{line}\n")) == [2]


def test_a_name_of_the_catalogue_may_be_written() -> None:
    assert list(made("topic = 'order.events'")) == []


def test_each_topic_of_a_service_is_in_the_catalogue() -> None:
    assert {name for own in TOPICS.values() for name in own} == {
        name for name in NAMES if name.partition(".")[0] in ("order", "inventory")
    }
