"""The sizes of modules, functions and folders stay within their bounds."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("contracts", "services", "analytics", "infra")
ROOMS = (*CODE, "tests")
MODULE_LINES = 400  # few whole files rather than splinters
TEST_LINES = 320  # tables of cases
FUNCTION_LINES = 45
BUDGETS = ROOT / "tests/architecture/budgets.toml"
SLACK_LINES = 100  # a room that has become so much smaller has its bound lowered


def modules(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


def length(module: Path) -> int:
    return len(module.read_text().splitlines())


def functions(module: Path) -> Iterator[tuple[str, int]]:
    """Each function and its number of lines, without decorators."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def generated(module: Path) -> bool:
    return ROOT / "contracts" in module.parents and module.read_text().startswith(
        '"""Generated from the schemas'
    )


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
    files = [*modules("analytics"), *(ROOT / "analytics").rglob("*.ipynb")]
    assert [str(file) for file in files if slow.search(file.read_text("utf-8"))] == []


def test_text_reaches_a_terminal_through_one_module() -> None:
    """Rich obeys markup in a string, passes escape sequences on, and cuts what does not fit a column."""
    rich = re.compile(
        r"rich\.(console|table|status|markup)|from rich import|(?<![.\w])(?<!def )print\(|\.echo\("
    )
    rooms = (*modules("infra/cli"), *modules("analytics/evidence"), *modules("analytics/jobs"))
    allowed = {"analytics/jobs/arguments.py", "analytics/jobs/held_by_hour.py", "analytics/jobs/lake.py"}
    writers = {str(module.relative_to(ROOT)) for module in rooms if rich.search(module.read_text())}
    assert writers <= allowed  # these print their own words and what `plain` returns


@dataclass(frozen=True)
class Budget:
    """The number of lines that the folders of a room may have together: the bound now and the design's target."""

    room: str
    bound: int
    target: int

    @property
    def folders(self) -> tuple[str, ...]:
        return CODE if self.room == "all" else tuple(self.room.split(", "))

    def broken(self, lines: int) -> str | None:
        """Why this number of lines does not fit the bound, or the bound does not fit the lines."""
        if self.bound < self.target:
            return f"{self.room}: the bound {self.bound} is below the target {self.target}"
        if lines > self.bound:
            return f"{self.room}: {lines} lines, the bound is {self.bound}; remove a concept"
        if lines + SLACK_LINES <= self.bound and self.bound > self.target:
            return f"{self.room}: {lines} lines; lower the bound of {self.bound} in {BUDGETS.name}"
        return None


def budgets() -> list[Budget]:
    return [Budget(room, **numbers) for room, numbers in tomllib.loads(BUDGETS.read_text("utf-8")).items()]


def test_every_room_keeps_its_budget() -> None:
    sizes = {budget: sum(length(module) for module in modules(*budget.folders)) for budget in budgets()}
    assert [reason for budget, lines in sizes.items() if (reason := budget.broken(lines))] == []


def test_every_module_is_in_a_budget() -> None:
    folders = [ROOT / folder for budget in budgets() if budget.room != "all" for folder in budget.folders]
    alone = {module for module in modules(*CODE) if not any(folder in module.parents for folder in folders)}
    assert {str(module.relative_to(ROOT)) for module in alone} <= {
        "services/__init__.py",
        "services/service.py",
    }


@pytest.mark.parametrize(
    ("bound", "lines", "reason"),
    [(1050, 1051, "remove a concept"), (1050, 950, "lower the bound"), (950, 900, "below the target")],
)
def test_a_budget_that_does_not_fit_is_refused(bound: int, lines: int, reason: str) -> None:
    assert reason in (Budget("a room", bound, 1000).broken(lines) or "")


@pytest.mark.parametrize(("bound", "lines"), [(1050, 1050), (1050, 951), (1000, 1000), (1000, 10)])
def test_a_budget_that_fits_is_not(bound: int, lines: int) -> None:
    assert Budget("a room", bound, 1000).broken(lines) is None
