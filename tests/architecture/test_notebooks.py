"""Notebooks in git are source alone, formatted like the code, and import only the rooms that they may."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "analytics" / "notebooks"
SERVICES = re.compile(r"(?:from|import) services\.([\w.]+)")
ALLOWED = re.compile(r"(order|inventory)\.domain\.\w+|kernel\.model\.decider")


def notebooks() -> Mapping[str, Any]:
    return {file.name: nbformat.read(file, as_version=4) for file in sorted(FOLDER.glob("*.ipynb"))}


def results_in(notebook: Any) -> list[int]:
    """The numbers of the cells that have an output or an execution count."""
    return [
        number
        for number, cell in enumerate(notebook.cells)
        if cell.get("outputs") or cell.get("execution_count") is not None
    ]


def forbidden_rooms(notebook: Any) -> list[str]:
    """The imports from the services that a notebook may not have: only the pure domain is allowed."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return [room for room in SERVICES.findall(code) if not ALLOWED.fullmatch(room)]


def test_notebooks_have_no_results() -> None:
    results = {name: results_in(notebook) for name, notebook in notebooks().items()}
    names = ("01_tour.ipynb", "02_audit.ipynb", "03_what_if.ipynb", "04_sql.ipynb")
    assert results == {name: [] for name in names}, "run `make format`"


def test_of_the_services_notebooks_run_the_domain_alone() -> None:
    assert {name: forbidden_rooms(notebook) for name, notebook in notebooks().items()} == {
        name: [] for name in notebooks()
    }


def test_notebooks_are_formatted_like_the_code() -> None:
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, FOLDER], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "No Python files" not in done.stderr


def test_what_is_wrong_is_found() -> None:
    run = nbformat.v4.new_code_cell("from services.order.api import app", execution_count=1)
    shown = nbformat.v4.new_code_cell(
        "import services.order.domain.decider", outputs=[nbformat.v4.new_output("stream", text="1")]
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A title"), run, shown])
    assert results_in(notebook) == [1, 2]
    assert forbidden_rooms(notebook) == ["order.api"]
