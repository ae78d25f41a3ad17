"""The catalogue of the marts as one HTML page: what each says, from what it is made, how it was read and checked."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from deltalake import DeltaTable

from analytics.delta import Location, last_commit
from analytics.marts.catalogue import MARTS, Column, Mart, built
from analytics.page import Markup, page, table

NOT_BUILT = "not built"
CUTS = {"as_of": "as of", "known_by": "known by"}  # in what a commit says, and in words


def catalogue_page(marts: Location, audit: Path, now: datetime) -> str:
    """Returns the page. `marts`: where the outputs are; `audit`: the JSON of the last audit, if there was one."""
    tables = {name: _shown(delta) for name, delta in built(marts).items()}
    rows = [
        (_link(name), mart.question, mart.definition.owner, *_state(tables.get(name), now))
        for name, mart in MARTS.items()
    ]
    parts = [
        "<h1>Marts</h1>",
        f"<p>{_last_audit(audit, now)}</p>",
        table(("mart", "question", "owner", "rows", "of the log", "read to (offsets)"), rows),
    ]
    for mart in MARTS.values():
        parts += _section(mart, tables.get(mart.name))
    return page("Daybook marts", parts)


def _shown(delta: DeltaTable) -> dict[str, Any]:
    """What its last commit says, with `rows`, `types` and `at` (when it was written)."""
    at, content = last_commit(delta)
    rows = delta.to_pyarrow_dataset()
    with duckdb.connect() as connection:
        described = connection.register("mart", rows).execute("DESCRIBE mart").fetchall()
    types = {name: kind for name, kind, *_ in described}
    return {**content, "rows": rows.count_rows(), "types": types, "at": at}


def _state(built: Mapping[str, Any] | None, now: datetime) -> tuple[str, str, str]:
    """Rows, how old what was read is, and from what."""
    if built is None:
        return "–", NOT_BUILT, "–"
    events = sum(end for parts in built["ends"].values() for end in parts.values())
    cut = "".join(f" {word} {built[key]}" for key, word in CUTS.items() if built[key])
    read_at = datetime.fromisoformat(built["updated"]) if built["updated"] else built["at"]
    return f"{built['rows']:,}", _ago(now - read_at), f"{built['source']} to {events:,}{cut}"


def _ago(age: timedelta) -> str:
    minutes = int(age.total_seconds() // 60)
    if minutes < 120:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 2880 else f"{minutes // 1440} days ago"


def _last_audit(audit: Path, now: datetime) -> str:
    try:
        verdict = msgspec.json.decode(audit.read_bytes())
        age = _ago(now - datetime.fromtimestamp(audit.stat().st_mtime, UTC))
    except FileNotFoundError:
        return "No audit was made yet: <code>./daybook audit</code>."
    colour = "yes" if verdict["identical"] else "no"
    word = escape(str(verdict["verdict"]))
    return f'Last audit: <b class="{colour}">{word}</b>, {verdict["events"]:,} events, {age}.'


def _section(mart: Mart, built: Mapping[str, Any] | None) -> Iterator[str]:
    yield f'<h2 id="{mart.name}">{mart.name}</h2><p>{escape(mart.question.capitalize())}. '
    yield f"One row per {escape(', '.join(mart.grain))}. "
    used = [other.name for other in MARTS.values() if mart.name in other.made_of and other is not mart]
    made = [_link(name) if name in MARTS and name != mart.name else escape(name) for name in mart.made_of]
    yield f"Made of: {', '.join(made)}."
    if used:
        yield f" Used by: {', '.join(map(_link, used))}."
    if built is not None:
        yield f" {built['rules']} rules hold of all rows."
    yield "</p>"
    types = built["types"] if built else {}
    columns = mart.definition.columns.items()
    yield table(
        ("column", "type", "what it is"),
        [(name, types.get(name, "").lower(), _description(name, column, mart)) for name, column in columns],
    )
    if mart.definition.holds:
        yield f"<p>Of each row: {', '.join(f'<code>{escape(rule)}</code>' for rule in mart.definition.holds)}</p>"


def _description(name: str, column: Column, mart: Mart) -> str:
    text = column.doc
    if column.money:
        text += ", in the currency of the row"
    if column.one_of:
        text += f"; one of {', '.join(map(str, column.one_of))}"
    if column.refers_to:
        text += f"; each stands in {column.refers_to}"
    if column.optional:
        text += "; may be absent"
    return text + (" (key)" if name in mart.grain else "")


def _link(name: str) -> Markup:
    return Markup(f'<a href="#{name}">{name}</a>')
