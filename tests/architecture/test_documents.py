"""The links, files and tests that documents name exist; the README stays short."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README_LINES = 120
LINE = 120
READ_FILES = 16  # from a request to its event and on to the read model
ROOMS = ("contracts", "services", "analytics", "infra", "tests", "docs")

HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#[^)\s]*)?\)")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
PROMISES = re.compile(r"^\|.*\| (?:test|shown by) \|\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)
CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)
IN_CODE = re.compile(r"`([^`\s]+)`")


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *(file for room in ROOMS for file in sorted((ROOT / room).rglob("*.md")))]


def long_lines(text: str) -> list[int]:
    """The numbers of lines that are longer than `LINE`. Rows of tables may be."""
    lines = enumerate(text.splitlines(), start=1)
    return [number for number, line in lines if len(line) > LINE and not line.startswith("|")]


def dead_links(document: Path, text: str) -> list[str]:
    links = LINK.findall(CODE_BLOCK.sub("", text))
    return [link for link in links if link and not (document.parent / link).exists()]


def anchors(text: str) -> set[str]:
    """The anchors of a document: each heading, in lower case, without punctuation, `-` for spaces."""
    headings = HEADING.findall(CODE_BLOCK.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_anchors(document: Path, text: str) -> list[str]:
    """Links to a missing heading of an existing document."""
    links = ANCHOR.findall(CODE_BLOCK.sub("", text))
    targets = [((document.parent / path) if path else document, anchor) for path, anchor in links]
    return [
        f"{file.name}#{anchor}"
        for file, anchor in targets
        if file.suffix == ".md" and file.exists() and anchor not in anchors(file.read_text("utf-8"))
    ]


def missing_files(text: str) -> list[str]:
    """Missing paths that stand in `code`, except those with a placeholder: `<name>`, `*` or `…`."""
    named = {code.partition("::")[0] for code in IN_CODE.findall(CODE_BLOCK.sub("", text))}
    paths = {path for path in named if path.split("/")[0] in ROOMS and "/" in path}
    return sorted(path for path in paths if not set("<*{…") & set(path) and not (ROOT / path).exists())


@cache
def names_in(module: Path) -> frozenset[str]:
    """The module's functions, classes and assigned names: a state machine's test is a class assigned to a name."""
    names: set[str] = set()
    for node in ast.parse(module.read_text("utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign():
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(names)


def missing_tests(text: str) -> list[str]:
    return [
        f"{path}::{name}"
        for path, name in TEST.findall(text)
        if not (ROOT / path).exists() or name not in names_in(ROOT / path)
    ]


def promises_without_a_test(text: str) -> list[str]:
    """The rows without a test in tables whose last column is for tests."""
    rows = [row for table in PROMISES.findall(text) for row in table.splitlines()]
    return [row for row in rows if not TEST.search(row)]


def test_links_lead_somewhere() -> None:
    dead = {
        str(document.relative_to(ROOT)): links
        for document in documents()
        if (links := dead_links(document, document.read_text("utf-8")))
    }
    assert dead == {}


def test_links_lead_to_headings() -> None:
    dead = {
        str(document.relative_to(ROOT)): links
        for document in documents()
        if (links := dead_anchors(document, document.read_text("utf-8")))
    }
    assert dead == {}


def test_files_that_are_named_exist() -> None:
    missing = {
        str(document.relative_to(ROOT)): paths
        for document in documents()
        if (paths := missing_files(document.read_text("utf-8")))
    }
    assert missing == {}


def test_no_line_is_long() -> None:
    long = {
        str(document.relative_to(ROOT)): numbers
        for document in documents()
        if (numbers := long_lines(document.read_text("utf-8")))
    }
    assert long == {}


@pytest.mark.parametrize("name", ["guarantees", "two-sites"])
def test_every_promise_has_the_tests_it_names(name: str) -> None:
    text = (ROOT / f"docs/reference/{name}.md").read_text("utf-8")
    assert len(TEST.findall(text)) > 15
    assert missing_tests(text) == []
    assert promises_without_a_test(text) == []


@pytest.mark.parametrize("number", range(1, 14))
def test_every_invariant_names_a_test(number: int) -> None:
    text = (ROOT / "docs/reference/guarantees.md").read_text("utf-8")
    row = re.search(rf"^\| I{number} \|.*$", text, re.MULTILINE)
    assert row is not None
    assert TEST.search(row[0])


def test_the_walk_through_the_code_is_short() -> None:
    text = (ROOT / "docs/reading-the-code.md").read_text("utf-8")
    named = [code for code in IN_CODE.findall(text) if code.startswith("services/") and code.endswith(".py")]
    assert 10 < len(set(named)) <= READ_FILES
    assert [int(number) for number in re.findall(r"^\*\*(\d+)\*\* `", text, re.MULTILINE)] == [
        *range(1, len(named) + 1)
    ]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= README_LINES


def test_what_is_missing_is_found() -> None:
    here = ROOT / "README.md"
    assert dead_links(
        here, "[a](docs/nowhere.md#x) [b](https://example.org) [c](docs/reference/guarantees.md)"
    ) == ["docs/nowhere.md"]
    assert dead_anchors(here, "[a](README.md#start) [b](#nowhere) [c](docs/README.md#nowhere)") == [
        "README.md#nowhere",
        "README.md#nowhere",
    ]
    named = "`infra/nowhere.py`, `services/<name>/api.py`, `infra/cli/__main__.py`"
    assert missing_files(named) == ["infra/nowhere.py"]
    assert long_lines(f"{'a' * LINE}\n{'a ' * LINE}\n| {'a' * LINE} |\n") == [2]
    assert promises_without_a_test("| promise | test |\n|---|---|\n| a | `tests/a.py::b` |\n| c | d |\n") == [
        "| c | d |"
    ]
    assert missing_tests("`tests/architecture/test_documents.py::test_nothing`") == [
        "tests/architecture/test_documents.py::test_nothing"
    ]
