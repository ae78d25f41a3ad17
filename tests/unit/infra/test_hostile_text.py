"""Text from outside is shown, never obeyed: in every table, at 80 columns, and on every line."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from analytics.evidence.comparison import Comparison, Difference
from analytics.evidence.report import Aside, Verdict, print_verdict
from analytics.terminal import LONGEST, Table, lines, plain
from contracts.kernel.records import Header, ParkedCommand
from infra.base.settings import StackSettings
from infra.cli import demo, failover, in_containers, parked, replay, sites, streams
from infra.cli import losses as losses_cli
from infra.cli.drill import report_table
from infra.cli.load import commands_table, unmapped_table
from infra.cli.output import fail, notes, results
from infra.cli.streams import show_record
from infra.dr.losses import Loss
from infra.dr.overview import ReadModelView, SitesView, SiteView
from infra.dr.plan import SiteStep
from infra.dr.reconcile import ReconStanding
from infra.lab.drills.report import DrillReport, Promise
from infra.lab.retail.invoices import Unmapped
from infra.lab.retail.load import Tally
from infra.log.parked import Parked
from infra.log.positions import Rewind
from infra.log.streams import ForeignSeen, StoppedStream, StreamRecord
from infra.stack.compose.engine import Container
from services.kernel.record.envelope import Metadata
from services.projection.engine.parked_keys import ParkedKey

AT = 1_750_000_000_000_000
COMMAND = "inventory.commands/11/1234567890"
RECORD = "inventory.events/11/1234567890"
PIECES = (
    *("[/boom]", "[red]", "[bold", "[link=http://x]", "\\[", "\\", ":warning:", "`./daybook up`"),
    *("\x1b[2J", "\x1b]8;;http://x\x07", "\x9b31m", "\x07", "\x08", "\x7f", "\r", "\n", "\t", "\x0b", "\x00"),
    *("\u202e", "\u2066", "\u200b", "\u2028", "\ufeff", "\u00a0", "\udc80", "\U000e0001"),
    *("漢字", "e\u0301", "👩🏽", "'", '"', "word ", "x" * 90, "y" * LONGEST),
)
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=6).map("".join)


def parked_list(text: str) -> list[str]:
    header = Header("ce_subject", text.encode(errors="replace"))
    kind = Header("ce_type", text.encode(errors="replace"))
    command = ParkedCommand("inventory.commands", 11, 1, text, b"", b"", (header, kind), AT)
    key = ParkedKey("orders", text, 2, 3, "order.events", 0, 17, "failed", text, AT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parked, "parked_commands", lambda _: [Parked(COMMAND, "inventory.parked", command)])
        patched.setattr(parked, "query", lambda *_: [key])
        patched.setattr(parked, "broker_at", str)
        parked.list_parked("somewhere", "somewhere")
    return [COMMAND, f"orders:{text}"]


def streams_list(text: str) -> list[str]:
    stopped = StoppedStream(f"order/{text}", 3, "forked", ("orders", text), 2, AT, text)
    results_by_name = {"stopped_streams": [stopped], "foreign_records": [ForeignSeen(RECORD, "headers", AT)]}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streams, "read_journal", lambda _: None)
        patched.setattr(streams, "REASONS", {"headers": text})
        for name in results_by_name:
            patched.setattr(streams, name, lambda *_, name=name: results_by_name[name])
        patched.setattr(streams, "foreign_count", 1)
        patched.setattr(streams, "query", lambda _, fetch: fetch(None) if callable(fetch) else fetch)
        patched.setattr(streams, "broker_at", str)
        streams.list_streams("somewhere", "somewhere")
    return [f"order/{text}", RECORD]


def losses(text: str) -> list[str]:
    loss = Loss(text, text, text, text, text, text, True, 1, text, 1, {"currency": text}, (), None, None)
    results.print(losses_cli._table([ReconStanding(loss, text)]))
    return [text]


def two_sites(text: str) -> list[str]:
    site = SiteView(text, True, text, 1, text, text, text, None, {text: ReadModelView(1, 1.0)}, {text: text})
    results.print(sites._table(SitesView([site, site], None)))
    return []


def container_status(text: str) -> list[str]:
    container = Container(text, text, text, text, 0, (text,))
    with pytest.MonkeyPatch.context() as patched, pytest.raises(typer.Exit):
        patched.setattr(in_containers, "containers", lambda _: [container])
        patched.setattr(in_containers, "_storage", lambda _: text)
        patched.setattr(in_containers, "database_url", lambda _: "")
        patched.setattr(in_containers, "stream_lines", lambda *_: [text])
        in_containers.status(StackSettings(stack="compose"))
    return []


def verdict(text: str) -> list[str]:
    comparison = Comparison(text, 1, 1, {text: text}, {text: {text: 1}}, 1)
    aside = Aside(1, 0, [(RECORD, text)], [(RECORD, text, text)])
    difference = Difference(text, text, 1, text)
    print_verdict(results, Verdict({}, 1, [comparison], [difference], aside, 1, [], 1.0))
    return [RECORD]


def other_tables(text: str) -> list[str]:
    results.print(report_table(DrillReport(text, 1, text, [Promise(text, text, text, False)])))
    results.print(failover.table_of((SiteStep(text, 1.0, text),)))
    replay._show([Rewind(text, 1, 1, 0, 1)], text, 0)
    results.print(unmapped_table([Unmapped(text, text, datetime(2010, 12, 1), 1, 1)]))  # type: ignore[arg-type]
    results.print(commands_table(Tally()))
    results.print(
        demo._sales_table([dict.fromkeys(("day", "orders", "units", "gross", "returned", "net"), text)])
    )
    return []


def records_shown(text: str) -> list[str]:
    meta = Metadata(text, text, text, text, 1, text, text, AT)
    headers = [(text, text.encode(errors="replace"))]
    show_record(StreamRecord(RECORD, None, None, headers, None, text))
    show_record(StreamRecord(RECORD, b"\x1b[2J", b"\x1b[2J", headers, meta, text))
    return [RECORD]


@pytest.fixture(scope="module", autouse=True)
def eighty_columns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(results, "_width", 80)
        patched.setattr(notes, "_width", 80)
        yield


def harmless(shown: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in shown)


@pytest.mark.parametrize(
    "show",
    [parked_list, streams_list, losses, two_sites, container_status, verdict, other_tables, records_shown],
)
@given(text=HOSTILE)
@example(text="[/boom]")
@example(text="\x1b[2J" + "".join(PIECES))
@example(text="0199f2a4-7c1e-7b52-8d7e-0123456789ab")
def test_a_terminal_shows_it_and_keeps_positions_whole(show: Callable[[str], list[str]], text: str) -> None:
    with notes.capture() as noted, results.capture() as shown:
        positions = show(text)
    assert harmless(shown.get()) and harmless(noted.get())
    for position in positions:
        assert plain(position, None) in shown.get()


@given(text=HOSTILE)
def test_a_failure_is_shown_line_by_line(text: str) -> None:
    with notes.capture() as noted, pytest.raises(typer.Exit):
        fail(text)
    assert harmless(noted.get())
    assert noted.get().count("\n") == text.count("\n") + 1


@given(text=HOSTILE.filter(lambda text: "\udc80" not in text))
def test_json_for_other_tools_stays_the_same_json(text: str) -> None:
    with results.capture() as shown:
        results.print(json.dumps({text: text}, ensure_ascii=False))
    assert harmless(shown.get())
    assert json.loads(shown.get()) == {text: text}


@given(text=HOSTILE, longest=st.none() | st.integers(0, 20))
def test_only_what_is_not_printable_is_escaped_and_a_cut_is_visible(text: str, longest: int | None) -> None:
    shown = plain(text, longest)
    assert shown.isprintable()
    if longest is not None and len(plain(text, None)) > longest:
        assert shown.endswith(f"… ({len(text)} characters)")
    elif text.isprintable():
        assert shown == text
    assert plain(shown, None) == shown


@given(text=HOSTILE)
def test_a_step_beside_a_spinner_is_text(text: str) -> None:
    with notes.capture() as noted, notes.status(text) as status:
        status.update(text)
        notes.print(status.renderable)
        notes.print(lines(text))
    assert harmless(noted.get())


@given(cells=st.lists(HOSTILE, min_size=3, max_size=3), width=st.integers(30, 120))
def test_a_table_is_as_wide_as_the_terminal_or_one_cell_a_line(cells: list[str], width: int) -> None:
    table = Table("position", "since", "why", whole=True)
    table.add_row(*cells)
    with pytest.MonkeyPatch.context() as patched, results.capture() as shown:
        patched.setattr(results, "_width", width)
        results.print(table)
    rows = shown.get().splitlines()
    first = plain(cells[0], None)
    if all(cell_len(row) <= width for row in rows) and rows[0].startswith("┏"):
        assert any(first in row for row in rows)
    else:
        _, since_cell, why = (plain(cell) for cell in cells)
        assert rows == [first, f"  since: {since_cell}", f"  why: {why}"]
