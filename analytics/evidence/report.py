"""The result of an audit: as values, as JSON, as a table in the terminal, and as a self-contained HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import msgspec
import pyarrow.compute as pc
from rich.text import Text

from analytics.evidence.comparison import Comparison, Difference
from analytics.log_rule import NO_FAULT, Exceptions, stops
from analytics.offsets import Offsets
from analytics.page import page, table
from analytics.terminal import Console, Table, plain

NAMED_RECORDS = 20
DECIDED = "decided"
IDENTICAL, STOPPED, DIFFERENT = "identical", "stopped", "different"


@dataclass(frozen=True)
class Aside:
    """The records that do not count. `foreign`: foreign records; `decided`: those that an operator decided.

    `named` are the first of them, (topic/partition/offset, reason). `stopped` are the keys that wait for an
    operator: (topic/partition/offset of the record, key, `forked` or `unreadable`)."""

    foreign: int
    decided: int
    named: Sequence[tuple[str, str]]
    stopped: Sequence[tuple[str, str, str]]


def aside(exceptions: Exceptions) -> Aside:
    """Returns the records that do not count, in the log's order."""
    stopped = stops(exceptions)
    foreign = exceptions.filter(pc.field("entity").is_null() & ~pc.field("what").isin(NO_FAULT))
    decided = foreign.filter(pc.field("what") == DECIDED).num_rows
    named = [(_position(row), row["what"]) for row in foreign.slice(0, NAMED_RECORDS).to_pylist()]
    keys = [(_position(row), row["entity"], row["what"]) for row in stopped.to_pylist()]
    return Aside(foreign.num_rows, decided, named, keys)


def _position(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}/{row['partition']}/{row['offset']}"


@dataclass(frozen=True)
class Verdict:
    """`ends`: the exclusive end offsets of what was read; `revenue`: (currency, day, net micros) for the charts.

    `parked` is how many events a read model could not apply, without those of keys that stopped in the log;
    `differences` names at most the first hundred keys of each kind."""

    ends: Offsets
    events: int
    comparisons: Sequence[Comparison]
    differences: Sequence[Difference]
    aside: Aside
    parked: int
    revenue: Sequence[tuple[str, str, int]]
    seconds: float

    @property
    def word(self) -> str:
        """`stopped`: all accounts agree, but keys wait for a decision, so not every event counts. Foreign records
        change nothing."""
        if any(comparison.differing for comparison in self.comparisons) or self.parked:
            return DIFFERENT
        return STOPPED if self.aside.stopped else IDENTICAL

    @property
    def identical(self) -> bool:
        """Tells whether all accounts agree and no key waits for a decision."""
        return self.word == IDENTICAL

    def to_json(self) -> str:
        content: dict[str, Any] = {"verdict": self.word, "identical": self.identical, **asdict(self)}
        return msgspec.json.format(msgspec.json.encode(content, enc_hook=str), indent=2).decode()


SHOWN = 20
COLUMNS = ("kind", "account", "keys", "fingerprint", "totals", "differing")
_COLOURS = {IDENTICAL: "green", STOPPED: "yellow", DIFFERENT: "red"}


def print_verdict(console: Console, verdict: Verdict) -> None:
    """Prints one row per account of each kind, then the differences."""
    accounts = Table(*COLUMNS)
    for comparison in verdict.comparisons:
        for *cells, differing in _accounts(comparison):
            accounts.add_row(*cells, Text(differing, "red") if comparison.differing else "0")
        accounts.add_section()
    console.print(accounts)
    for note in _left_out(verdict):
        console.print(note)
    for difference in verdict.differences[:SHOWN]:
        at = "" if difference.version is None else f" from version {difference.version} on"
        named = Text(plain(f"{difference.kind} {difference.key}{at}:", None), "red")
        console.print(named, difference.reason)
    for where, key, why in verdict.aside.stopped[:SHOWN]:
        console.print(Text(plain(f"{key} stopped at {where}:", None), "yellow"), why)
    if foreign := _foreign(verdict):
        console.print(foreign)
    for where, why in verdict.aside.named:
        console.print(f"foreign {where}: {why}")
    if verdict.parked:
        console.print(f"{verdict.parked:,} events could not be applied by a read model", style="red")
    console.print(_headline(verdict), style=f"bold {_COLOURS[verdict.word]}")


def to_html(verdict: Verdict) -> str:
    """Returns a page with the verdict, the accounts, net sales by day, the differences and the offsets."""
    parts = [
        f'<h1 class="{"yes" if verdict.identical else "no"}">{escape(_headline(verdict))}</h1>',
        table(COLUMNS, [row for comparison in verdict.comparisons for row in _accounts(comparison)]),
        *(f"<p>{escape(note)}</p>" for note in _left_out(verdict)),
        "<h2>Net sales by day</h2>",
        *([] if verdict.revenue else ["<p>No sales.</p>"]),
    ]
    for currency in dict.fromkeys(currency for currency, _, _ in verdict.revenue):
        days = [(day, net) for of, day, net in verdict.revenue if of == currency]
        parts += [f"<h3>{escape(currency)}</h3>", _bars(days)]
    if verdict.differences:
        rows = [(item.kind, item.key, str(item.version or ""), item.reason) for item in verdict.differences]
        parts += ["<h2>What differs</h2>", table(("kind", "key", "first version", "accounts"), rows)]
    if verdict.aside.stopped:
        parts += ["<h2>Stopped keys</h2>", table(("record", "key", "step"), verdict.aside.stopped)]
    if foreign := _foreign(verdict):
        parts += ["<h2>Foreign records</h2>", f"<p>{escape(foreign)}</p>"]
        parts.append(table(("record", "reason"), verdict.aside.named))
    ends = [
        (topic, str(number), f"{end:,}")
        for topic, partitions in verdict.ends.items()
        for number, end in sorted(partitions.items())
    ]
    parts += ["<h2>Read up to</h2>", table(("topic", "partition", "offset"), ends)]
    return page("Daybook audit", parts)


def _left_out(verdict: Verdict) -> list[str]:
    return [
        f"{comparison.kind}: {comparison.left_out:,} skipped, not created by the loader"
        for comparison in verdict.comparisons
        if comparison.left_out
    ]


def _headline(verdict: Verdict) -> str:
    word = {IDENTICAL: "Identical", DIFFERENT: "Not identical"}.get(verdict.word)
    stopped = len(verdict.aside.stopped)
    word = word or f"The accounts agree, but {stopped} keys stopped (`./daybook streams list`)"
    return f"{word}: {verdict.events:,} events audited in {verdict.seconds:.1f} s"


def _foreign(verdict: Verdict) -> str:
    """Empty where there are none."""
    aside = verdict.aside
    if not aside.foreign:
        return ""
    return f"{aside.foreign:,} foreign records in the log do not count; {aside.decided:,} of them by decision"


def _accounts(comparison: Comparison) -> list[tuple[str, ...]]:
    """Returns the cells of COLUMNS for each account. Totals of money are micros of any currency: only to compare."""
    keys, differing = f"{comparison.keys:,}", f"{comparison.differing:,}"
    rows: list[tuple[str, ...]] = []
    for account, fingerprint in comparison.fingerprints.items():
        totals = ", ".join(f"{name} {value:,}" for name, value in comparison.totals[account].items())
        rows.append((comparison.kind, account, keys, fingerprint, totals, differing))
    return rows


def _bars(revenue: Sequence[tuple[str, int]]) -> str:
    """One bar per day, all of one currency; days below zero hang under the axis."""
    width, height, left = 900, 240, 70
    high, low = max(0, *(net for _, net in revenue)), min(0, *(net for _, net in revenue))
    scale = (height - 40) / ((high - low) or 1)
    axis, step = 10 + high * scale, (width - left) / len(revenue)
    wide = max(step * 0.8, 1)
    bars = [
        f'<rect x="{left + index * step:.1f}" y="{axis - max(net, 0) * scale:.1f}" width="{wide:.1f}" '
        f'height="{abs(net) * scale:.1f}" fill="{"#2f6fb3" if net >= 0 else "#b3261e"}">'
        f"<title>{escape(day)}: {net / 1_000_000:,.2f}</title></rect>"
        for index, (day, net) in enumerate(revenue)
    ]
    marks = [
        f'<text x="0" y="18">{high / 1_000_000:,.0f}</text>',
        f'<line x1="{left}" x2="{width}" y1="{axis:.1f}" y2="{axis:.1f}" stroke="#8a93a5"/>',
        f'<text x="{left}" y="{height - 6}">{escape(revenue[0][0])}</text>',
        f'<text x="{width}" y="{height - 6}" text-anchor="end">{escape(revenue[-1][0])}</text>',
    ]
    return f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(bars + marks)}</svg>'
