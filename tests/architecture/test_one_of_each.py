"""One HTTP client (httpx, docs/adr/0019), one JSON codec (msgspec), one CLI parser (typer); who may use another."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCTION = ("services", "analytics", "infra")
LOADS = {
    "infra/lab/load/clients.py",
    "tests/unit/retail/test_clients.py",
}
IN_THE_SERVICES_IMAGE = {"infra/stack/compose/connectors.py", "infra/stack/compose/fill_registry.py"}
ISSUER_KEYS = {"services/edge/identity.py"}
IN_THE_IMAGE_OF_JARS = {"infra/stack/embedded/java.py"}
# A module, and the files that may import it all the same.
HTTP = {
    "aiohttp": LOADS,
    "http.client": ISSUER_KEYS | IN_THE_IMAGE_OF_JARS | {"tests/unit/api/test_identity.py"},
    "requests": set(),
    "urllib.error": IN_THE_SERVICES_IMAGE,
    "urllib.request": IN_THE_SERVICES_IMAGE | ISSUER_KEYS | IN_THE_IMAGE_OF_JARS,
}
JSON = {
    # It escapes one character as JSON does; msgspec escapes fewer.
    "json": {"analytics/terminal.py"},
    "orjson": set(),
}
CLI = {
    # The services' image has no typer; a service's one argument is checked by the standard library.
    "argparse": {"services/service.py"},
    "click": set(),
    "optparse": set(),
}


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imported() -> dict[str, set[str]]:
    """The imports of each file."""
    paths = (path for room in (*PRODUCTION, "tests") for path in (ROOT / room).rglob("*.py"))
    return {str(path.relative_to(ROOT)): set(imports(path.read_text("utf-8"))) for path in paths}


def users(module: str, *rooms: str) -> set[str]:
    """The files that import the package."""
    return {file for file, names in imported().items() if file.startswith(rooms) and module in names}


@pytest.mark.parametrize("module", HTTP)
def test_one_http_client(module: str) -> None:
    assert users(module, *PRODUCTION, "tests") == HTTP[module]


@pytest.mark.parametrize("module", JSON)
def test_one_json_codec(module: str) -> None:
    assert users(module, *PRODUCTION) == JSON[module]


@pytest.mark.parametrize("module", CLI)
def test_one_cli_parser(module: str) -> None:
    assert users(module, *PRODUCTION, "tests") == CLI[module]


@pytest.mark.parametrize(
    "planted",
    [
        "import urllib.request",
        "from urllib import request",
        "def f():\n    from urllib.request import urlopen",
    ],
)
def test_a_planted_import_is_seen(planted: str) -> None:
    assert "urllib.request" in set(imports(planted))
