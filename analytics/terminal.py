"""Prints foreign text: keys, headers, reasons and file names may hold any character.

Every command prints through `Console` and `Table`. They read no markup in a string, escape every character
that a terminal obeys instead of showing, and break no line: a position stays one word. Style is for `Text`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rich import console, status, table
from rich.cells import cell_len
from rich.text import Text

LONGEST = 300  # characters of a table cell
READABLE = 7  # terminal columns into which a longer cell may be folded
BORDER = 3  # terminal columns between two cells


def plain(text: str, longest: int | None = LONGEST) -> str:
    r"""Returns foreign text as one harmless line; cuts it visibly after `longest` characters.

    Escapes what is not printable (control characters, line ends, direction overrides, lone surrogates) as
    JSON does, `\u001b`: JSON stays the same JSON, and `$'…'` in a shell is the text again.
    """
    shown = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    if longest is None or len(shown) <= longest:
        return shown
    return f"{shown[:longest]}… ({len(text)} characters)"


def lines(text: str) -> Text:
    """The same for text of several lines, for example the end of a log; never cut."""
    return Text("\n").join(Text(plain(line, None)) for line in text.split("\n"))


class Console(console.Console):
    """Shows every string as `plain` returns it, uncut, whatever Rich would do with it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(soft_wrap=True, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(plain(text, None), **options | {"markup": False, "emoji": False})

    def status(self, status: Any, **options: Any) -> Status:
        return Status(status, console=self, **options)


class Status(status.Status):
    """A spinner with a step beside it. Rich itself reads markup there."""

    def __init__(self, status: str, **options: Any) -> None:
        super().__init__(Text(plain(status)), **options)

    def update(self, status: Any = None, **options: Any) -> None:
        super().update(Text(plain(status)) if isinstance(status, str) else status, **options)


class Table(table.Table):
    """A table that folds what a column has no room for.

    `whole`: so many columns at the left are neither cut nor folded, because the next command takes the first. Where
    the terminal is too narrow, each row becomes a line with the first cell and a line for each other cell.
    """

    def __init__(
        self, *headers: str, rows: Iterable[Iterable[Any]] = (), whole: int = 0, **options: Any
    ) -> None:
        super().__init__(**options)
        self._whole = whole
        for header in headers:
            self.add_column(header)
        for cells in rows:
            self.add_row(*cells)

    def add_column(self, header: Any = "", footer: Any = "", **options: Any) -> None:
        whole = len(self.columns) < self._whole
        super().add_column(header, footer, overflow="fold", no_wrap=whole, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        limits = [*[None] * self._whole, *[LONGEST] * len(self.columns)]
        shown = (
            Text(plain(cell, limit)) if isinstance(cell, str) else cell
            for cell, limit in zip(cells, limits, strict=False)
        )
        super().add_row(*shown, **options)

    def __rich_console__(
        self, console: console.Console, options: console.ConsoleOptions
    ) -> console.RenderResult:
        if not self._whole or self._fits(options.max_width):
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(plain(str(self.title)))
        first, *others = self.columns
        for position, *cells in zip(first.cells, *(column.cells for column in others), strict=True):
            yield position
            for column, cell in zip(others, cells, strict=True):
                yield Text.assemble(f"  {column.header}: ", cell)

    def _fits(self, width: int) -> bool:
        widths = [
            max(cell_len(str(cell)) for cell in (column.header, *column.cells)) for column in self.columns
        ]
        cells = sum(widths[: self._whole]) + sum(min(width, READABLE) for width in widths[self._whole :])
        return cells + BORDER * len(self.columns) + 1 <= width
