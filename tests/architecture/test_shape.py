"""The house keeps its shape: import rules, and sizes that one can read in a sitting."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("contracts", "services", "analytics", "infra")
ROOMS = (*CODE, "tests")
MODULE_LINES = 250
TEST_LINES = 320  # tables of cases
FUNCTION_LINES = 45
KERNEL_FILES = 44
KERNEL_LINES = 5_400  # docstrings and blank lines included; docs/adr says why it is not smaller


def modules(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


def length(module: Path) -> int:
    return len(module.read_text().splitlines())


def functions(module: Path) -> Iterator[tuple[str, int]]:
    """Each function with its lines, decorators apart."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def generated(module: Path) -> bool:
    return module.parts[-2:] in {
        (package, file)
        for package in ("order", "inventory", "kernel")
        for file in ("commands.py", "events.py", "records.py", "encoders.py")
    }


def test_no_module_is_too_long() -> None:
    long = {
        str(module.relative_to(ROOT)): length(module)
        for module in modules(*ROOMS)
        if length(module) > (TEST_LINES if ROOT / "tests" in module.parents else MODULE_LINES)
        and not generated(module)
    }
    assert long == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{module.relative_to(ROOT)}:{name}": lines
        for module in modules(*CODE)
        for name, lines in functions(module)
        if lines > FUNCTION_LINES
    }
    assert long == {}


def test_spark_calls_python_for_batches_only() -> None:
    """A scalar Python function costs a multiple of SQL or of an Arrow batch; so does a frame per group."""
    slow = re.compile(r"udf\(|applyInPandas|transformWithState|\.rdd\b")
    places = [*modules("analytics"), *(ROOT / "analytics").rglob("*.ipynb")]
    assert [str(place) for place in places if slow.search(place.read_text("utf-8"))] == []


def test_text_reaches_a_terminal_through_one_module() -> None:
    """Rich obeys markup in a string, passes escape sequences on, and cuts what does not fit a column."""
    rich = re.compile(
        r"rich\.(console|table|status|markup)|from rich import|(?<![.\w])(?<!def )print\(|\.echo\("
    )
    rooms = (*modules("infra/cli"), *modules("analytics/evidence"), *modules("analytics/jobs"))
    allowed = {"analytics/jobs/arguments.py", "analytics/jobs/held_by_hour.py", "analytics/jobs/lake.py"}
    found = {str(module.relative_to(ROOT)) for module in rooms if rich.search(module.read_text())}
    assert found <= allowed  # these print their own words and what `plain` returns


def test_the_kernel_stays_small() -> None:
    kernel = [module for module in modules("services/kernel") if module.name != "__init__.py"]
    assert len(kernel) <= KERNEL_FILES
    assert sum(length(module) for module in kernel) <= KERNEL_LINES
