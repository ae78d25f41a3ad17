"""`daybook load`: the retail invoices, sent to the shop through its HTTP APIs."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli.lifecycle import client_settings, shop_entrance
from infra.cli.output import counting_bar, fail, notes, results
from infra.lab.load.clients import CommandResponse, NoResponse, NothingThere, Urls
from infra.lab.load.shop import urls_of
from infra.lab.retail.expectation import RetailExpectation, expect, expected_refusals
from infra.lab.retail.invoices import Unmapped, entries, read_rows
from infra.lab.retail.load import KindTally, Tally, load
from infra.lab.retail.load_history import loaded_since, read_loaded, record_loaded, steps_of, without_expired
from infra.lab.retail.plan import Book, LoadPlan, Period, read_book
from infra.lab.retail.steps import Place, Step


def _load_with_progress(plan: LoadPlan, urls: Urls, concurrency: int, rate: float | None) -> Tally:
    """Send the load under a progress bar that counts commands and order lines. Raises NoResponse."""
    with counting_bar() as progress:
        commands = progress.add_task("commands", total=sum(1 for _ in plan.steps()))
        lines = progress.add_task("order lines settled", total=plan.order_lines)

        def advance(step: Step, _: CommandResponse) -> None:
            progress.advance(commands)
            if isinstance(step, Place):
                progress.advance(lines, len(step.lines))

        return asyncio.run(load(plan, urls, concurrency, rate, advance))


def show_load(plan: LoadPlan, tally: Tally) -> None:
    """Print what was sent, what became of it, and what has no command in the shop."""
    results.print(commands_table(tally))
    lines = f"{tally.order_lines:,} order lines settled, {tally.lines_per_second:,.0f} per second"
    results.print(f"{lines}; {tally.commands_per_second:,.0f} commands a second")
    results.print(f"refused: {_refusals(tally.refused)}")
    results.print(unmapped_table(plan.unmapped))


def commands_table(tally: Tally) -> Table:
    """Outcomes by kind of command, with their times."""
    table = Table(
        "command", title=f"{tally.total().commands:,} commands in {tally.seconds:.1f} s", title_justify="left"
    )
    for name in ("sent", "acknowledged", "refused", "replayed", "repeated", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for kind in tally.kinds():
        table.add_row(*_cells(kind))
    table.add_section()
    table.add_row(*_cells(tally.total()))
    return table


def _refusals(refused: Mapping[str, int]) -> str:
    """Refusals by reason in one line."""
    return ", ".join(f"{count} {code}" for code, count in sorted(refused.items())) or "none"


def unmapped_table(unmapped: Iterable[Unmapped]) -> Table:
    """Lines of the data that have no command in the shop, by reason, with an invoice as an example."""
    table = Table("not mapped", title_justify="left")
    for name in ("lines", "invoices", "value"):
        table.add_column(name, justify="right")
    table.add_column("for example")
    lines: Counter[str] = Counter()
    value: Counter[str] = Counter()
    invoices: dict[str, list[str]] = {}
    for gap in unmapped:
        lines[gap.reason] += gap.lines
        value[gap.reason] += gap.value
        invoices.setdefault(gap.reason, []).append(gap.invoice)
    for reason, count in lines.most_common():
        numbers = invoices[reason]
        money = f"£{value[reason] / 1e6:,.2f}"
        table.add_row(reason, f"{count:,}", f"{len(set(numbers)):,}", money, numbers[0])
    return table


def _cells(kind: KindTally) -> list[str]:
    counts = (kind.commands, kind.acknowledged, kind.refused, kind.replayed, kind.repeated)
    times = (f"{1000 * kind.p50:.1f}", f"{1000 * kind.p99:.1f}")
    return [kind.kind, *(f"{count:,}" for count in counts), *times]


app = typer.Typer()
DAY = "%Y-%m-%d"
FIRST_DAY, FIRST_MONTH_END, LAST_DAY = date(2010, 12, 1), date(2010, 12, 31), date(2011, 8, 31)


@app.command("load", rich_help_panel="The real input")
def load_command(
    first: Annotated[datetime | None, typer.Option("--from", formats=[DAY], help="The first day.")] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", formats=[DAY], help="The last day, included.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All nine months.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=512, help="Concurrent requests.")] = 64,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Highest number of commands per second.")
    ] = None,
) -> None:
    """Load retail invoices through the HTTP APIs, as customers and the warehouse would send them.

    The data covers 2010-12-01 to 2011-08-31; without options, December 2010 is loaded. Consecutive periods
    add up: returns in January find the orders of December if December is loaded. Loading twice
    changes nothing. docs/reference/real-input.md maps each row.

    Exit code 1 if a response is missing, or if other commands were refused than the data expects.
    """
    begin, end = _days(first, last, everything)
    settings = client_settings()
    book = open_book()
    period = Period(begin, end, loaded_since(begin, read_loaded(settings.home)))
    plan, tally = send(book, period, settings, concurrency, rate)
    show_load(plan, tally)
    expectation = write_expectation(expected_now(book, settings), settings)
    notes.print(f"Next: `./daybook audit --expectation {expectation}`, `./daybook status`.")


def _days(first: datetime | None, last: datetime | None, everything: bool) -> tuple[date, date]:
    if everything and (first or last):
        raise typer.BadParameter("loads all of the data: omit --from and --to", param_hint="--all")
    begin = first.date() if first else FIRST_DAY
    end = last.date() if last else LAST_DAY if everything else FIRST_MONTH_END
    if not FIRST_DAY <= begin <= end <= LAST_DAY:
        raise typer.BadParameter(f"the data covers {FIRST_DAY} to {LAST_DAY}", param_hint="--from and --to")
    return begin, end


def open_book() -> Book:
    """Read the data set; takes some seconds."""
    with notes.status("Reading nine months of invoices"):
        return read_book(entries(read_rows()))


def planned(book: Book, period: Period, settings: StackSettings) -> LoadPlan:
    """The commands of a period that are sent now."""
    return without_expired(book, book.load(period), read_loaded(settings.home), datetime.now(UTC))


def send(
    book: Book, period: Period, settings: StackSettings, concurrency: int, rate: float | None = None
) -> tuple[LoadPlan, Tally]:
    """Send a period and record it. Ends with exit code 1 where an outcome is missing or is not the data's."""
    now = datetime.now(UTC)
    plan = planned(book, period, settings)
    try:
        tally = _load_with_progress(plan, client_urls(settings), concurrency, rate)
    except NothingThere as reason:
        fail(f"the shop does not respond ({reason}): is it running? `./daybook up` starts it")
    except NoResponse as reason:
        fail(f"no response: {reason}. See `./daybook status`; repeat the same load to continue.")
    expected = expected_refusals(plan.steps())
    if tally.refused != expected:
        fail(f"refused: {_refusals(tally.refused)}; expected by the data: {_refusals(expected)}")
    record_loaded(settings.home, period, now)
    return plan, tally


def client_urls(settings: StackSettings) -> Urls:
    """The addresses of the APIs for clients: those of the router where two sites run."""
    return urls_of(shop_entrance(settings).addresses, settings)


def expected_now(book: Book, settings: StackSettings) -> RetailExpectation:
    """The content that the shop must have after every load so far."""
    return expect(steps_of(book, (load.period for load in read_loaded(settings.home))))


def write_expectation(expected: RetailExpectation, settings: StackSettings) -> Path:
    """Write the expectation to a file for the audit: a table of JSON lines."""
    file = settings.home / "expectation.jsonl"
    file.write_bytes(msgspec.json.Encoder().encode_lines(expected.rows()))
    return file
