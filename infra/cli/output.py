"""Output of commands: results on standard output, notes on standard error; exit codes are 0, 1 and 2."""

import os
import re
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from analytics.terminal import Console, lines
from infra.base.settings import typed_for

_TYPED_FOR_NO_STACK = re.compile(r"`\./daybook (?!--stack)")


class Notes(Console):
    """A console whose hints name the current stack: `./daybook …` alone is about the embedded one."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(_typed(item) if isinstance(item, str) else item for item in objects), **how)


AsJson = Annotated[bool, typer.Option("--json", help="For other tools.")]
results = Console()
notes = Notes(stderr=True)


def print_json(value: Any) -> None:
    """For other tools, in one line."""
    results.print(msgspec.json.encode(value, enc_hook=str).decode())


def counting_bar(*, transient: bool = False) -> Progress:
    """How many of how many, on standard error; a `transient` one disappears at its end."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=notes, transient=transient)


def fail(reason: str, exit_code: int = 1) -> NoReturn:
    """Print the reason and end the command."""
    notes.print(Text("daybook:", "red"), lines(_typed(reason)))
    raise typer.Exit(exit_code)


def _typed(text: str) -> str:
    command = typed_for(os.environ.get("DAYBOOK_STACK", "embedded"))
    return _TYPED_FOR_NO_STACK.sub(f"`{command} ", text)
