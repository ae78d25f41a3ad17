"""`daybook load`: the retail invoices into the shop, through its HTTP APIs."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from infra.base.settings import StackSettings
from infra.cli.inspect import running_settings
from infra.cli.load_report import (
    commands_table,
    figures,
    load_with_progress,
    refusals,
    unmapped_table,
)
from infra.cli.output import fail, notes, results
from infra.lab.retail.expectation import RetailExpectation, expect, expected_refusals
from infra.lab.retail.invoices import entries
from infra.lab.retail.load import Pace
from infra.lab.retail.loaded import known_since, read_loaded, record_loaded, steps_of, without_forgotten
from infra.lab.retail.plan import Book, LoadPlan, Period, read_book
from infra.lab.retail.rows import read_rows
from infra.lab.retail.sender import NoResponse, NothingThere
from infra.lab.retail.shop import api_urls
from infra.lab.retail.tally import Tally

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
    settings = running_settings()
    book = open_book()
    period = Period(begin, end, known_since(begin, read_loaded(settings.home)))
    plan, tally = send(book, period, settings, Pace(concurrency, rate))
    results.print(commands_table(tally))
    results.print(figures(tally))
    results.print(f"refused: {refusals(tally.refused)}")
    results.print(unmapped_table(plan.unmapped))
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
    """The data set, read; some seconds."""
    with notes.status("Reading nine months of invoices"):
        return read_book(entries(read_rows()))


def planned(book: Book, period: Period, settings: StackSettings) -> LoadPlan:
    """What of a period is sent now."""
    return without_forgotten(book, book.load(period), read_loaded(settings.home), datetime.now(UTC))


def send(book: Book, period: Period, settings: StackSettings, pace: Pace) -> tuple[LoadPlan, Tally]:
    """Send a period and remember it; leaves with exit code 1 where an answer is missing or not the data's."""
    now = datetime.now(UTC)
    plan = planned(book, period, settings)
    try:
        tally = load_with_progress(plan, api_urls(settings), pace)
    except NothingThere as reason:
        fail(f"the shop does not respond ({reason}): is it running? `./daybook up` starts it")
    except NoResponse as reason:
        fail(f"no response: {reason}. See `./daybook status`; repeat the same load to continue.")
    expected = expected_refusals(plan.steps())
    if tally.refused != expected:
        fail(f"refused: {refusals(tally.refused)}; expected by the data: {refusals(expected)}")
    record_loaded(settings.home, period, now)
    return plan, tally


def expected_now(book: Book, settings: StackSettings) -> RetailExpectation:
    """What must be in the shop after every load so far."""
    return expect(steps_of(book, (load.period for load in read_loaded(settings.home))))


def write_expectation(expected: RetailExpectation, settings: StackSettings) -> Path:
    """The expectation as a file for the audit."""
    file = settings.home / "expectation.json"
    file.write_bytes(msgspec.json.encode(expected.to_json()))
    return file
