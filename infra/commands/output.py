"""How commands speak: results on standard output, all else on standard error, exit codes 0, 1 and 2."""

from typing import NoReturn

import typer
from rich.console import Console

results = Console(highlight=False)
notes = Console(stderr=True, highlight=False)


def fail(reason: str) -> NoReturn:
    """Say why and leave with exit code 1."""
    notes.print(f"[red]daybook:[/red] {reason}", soft_wrap=True, markup=True)
    raise typer.Exit(1)
