"""Which code made a read model's rows: a digest of its fold, its store and its tables."""

import ast
import re
from hashlib import sha256
from importlib.resources import files

CODE = ("fold.py", "store.py")


def fingerprint(package: str) -> str:
    """Equal where comments, docstrings, imports and layout alone differ. What the folder imports does not count: a
    change of it that changes rows needs a rebuild by hand."""
    folder = files(package)
    parts = [_code(folder.joinpath(name).read_text("utf-8")) for name in CODE]
    tables = re.sub(r"--.*", "", folder.joinpath("schema.sql").read_text("utf-8"))
    return sha256("\n".join([*parts, *tables.split()]).encode()).hexdigest()


def _code(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _without_effect(statement)]
    return ast.unparse(tree)


def _without_effect(statement: ast.stmt) -> bool:
    """An import, or a docstring."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case _:
            return False
