"""What the HTML pages of analytics share: each is one file that needs nothing else."""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1d2433; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d9dee8; vertical-align: top; }
td { font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
h2 { margin-top: 2.5rem; } a { color: #2f6fb3; }
.yes { color: #17704a; } .no { color: #b3261e; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #5b6475; }
"""


class Markup(str):
    """HTML, which `table` does not escape."""


def page(title: str, parts: Iterable[str]) -> str:
    """Returns the whole page; `parts` are HTML."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Returns a table of text; a cell that is `Markup` stays as it is."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return Markup(f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")


def _cell(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)
