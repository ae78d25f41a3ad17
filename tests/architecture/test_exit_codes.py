"""Every exit code that the shop's processes can produce is in docs/reference/exit-codes.md, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from services.kernel import exit_codes

ROOT = Path(__file__).parents[2]
CODES = {name: code for name, code in vars(exit_codes).items() if name.startswith("EXIT_")}
# Modules of the processes that `daybook up` starts, by the group that the table names.
WORKERS = ("services/kernel/worker/worker.py",)
OTHERS = (
    "services/service.py",
    "services/edge/server.py",
    "services/projection/main.py",
    "infra/log/registry.py",
    "infra/dr/guard.py",
    "infra/router/router.py",
    "infra/stack/link.py",
)
PYTHON = {0, 1, 2}  # its end, an exception that nobody caught, argparse's refusal


def documented() -> dict[str, set[int]]:
    """The codes of the table by group; a row without a group belongs to the group above."""
    text = (ROOT / "docs/reference/exit-codes.md").read_text("utf-8")
    _, _, text = text.partition("## Processes of the shop\n")  # other sections have tables of numbers too
    text, _, _ = text.partition("\n## ")
    rows = re.findall(r"^\| ([\w ]*)\| (-?\d+|negative) \|", text, re.MULTILINE)
    codes: dict[str, set[int]] = {}
    group = ""
    for name, code in rows:
        group = name.strip() or group
        if code != "negative":
            codes.setdefault(group, set()).add(int(code))
    return codes


def unnamed_exits(module: str) -> Iterator[str]:
    """The lines where the module ends its process, or returns from a function that returns an `int`, with
    neither a named code nor another function's result."""
    for node in ast.walk(ast.parse((ROOT / module).read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="exit" | "_exit") | ast.Name(id="SystemExit" | "exit")):
                values: list[ast.expr | None] = list(node.args)
            case ast.FunctionDef(returns=ast.Name(id="int")):
                values = [child.value for child in ast.walk(node) if isinstance(child, ast.Return)]
            case _:
                continue
        yield from (f"{module}:{value.lineno}" for value in values if value and not named(value))


def named(value: ast.expr) -> bool:
    match value:
        case ast.Name(id=name):
            return name in CODES
        case ast.IfExp(body=body, orelse=orelse):
            return named(body) and named(orelse)
        case _:
            return isinstance(value, ast.Call)


def exits(module: str) -> set[int]:
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    return {CODES[node.id] for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in CODES}


def test_processes_end_with_named_codes_only() -> None:
    assert [line for module in (*WORKERS, *OTHERS) for line in unnamed_exits(module)] == []


def test_the_table_holds_every_code_and_no_other() -> None:
    table = documented()
    assert set(table) == {"all", "workers"}
    produced = {
        "workers": {code for module in WORKERS for code in exits(module)} - PYTHON,
        "all": {code for module in OTHERS for code in exits(module)} | PYTHON,
    }
    assert table == produced


def test_every_code_is_somebodys() -> None:
    assert {code for module in (*WORKERS, *OTHERS) for code in exits(module)} == set(CODES.values())


def test_an_unnamed_exit_code_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import sys\n\ndef main() -> int:\n    return 7 if sys.argv else EXIT_LOST\n\n"
        "MINE = 9\nsys.exit(MINE)\nsys.exit(main())\nsys.exit(EXIT_LOST)\n"
    )
    assert {line.rpartition(":")[2] for line in unnamed_exits(str(file))} == {"4", "7"}
