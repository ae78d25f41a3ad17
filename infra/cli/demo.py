"""`daybook demo`: real orders on their whole path, from HTTP to the log, the read models and Spark."""

from datetime import date
from typing import Annotated, Any

import httpx
import typer

from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli.audit import run_job
from infra.cli.lifecycle import client_settings, up
from infra.cli.load import client_urls, expected_now, open_book, planned, send, show_load, write_expectation
from infra.cli.output import fail, notes, results
from infra.lab.demo import DECEMBER, SMALL, Census, Script, census, mart_differences, write_and_read
from infra.lab.load.shop import NotAtRest, Rest, Shop
from infra.lab.retail.load import Tally
from infra.lab.retail.load_history import loaded_since, read_loaded
from infra.lab.retail.plan import Book, LoadPlan, Period
from infra.stack.platform import platform_of
from infra.stack.site import Site

app = typer.Typer()
REST_SECONDS = 300.0
BY_HAND = 3
SHOWN_DAYS = 5
IDENTICAL = 0


@app.command(rich_help_panel="The real input")
def demo(
    small: Annotated[bool, typer.Option("--small", help="Two quiet days instead of December.")] = False,
    spark: Annotated[bool, typer.Option(help="Run Spark's replay and the audit at the end.")] = True,
    concurrency: Annotated[int, typer.Option(min=1, max=512, help="Concurrent requests.")] = 64,
) -> None:
    """Start the shop, load December 2010, query it, and prove that log, read models and Spark agree.

    The shop keeps running afterwards. Exit code 1 if something differs from the data, 2 if the audit could not be made.
    """
    settings = _opened()
    try:
        book, code = open_book(), IDENTICAL
        with Shop(client_urls(settings)) as shop:
            Story(book, settings, shop, SMALL if small else DECEMBER, concurrency).run()
        if spark:
            code = _prove(book, settings)
    except httpx.HTTPError as error:
        fail(f"{error!r}: `./daybook status` shows the stack.")
    except NotAtRest as left:
        fail(f"not settled after {REST_SECONDS:.0f} s: {left}. `./daybook logs` may show why.")
    _show_next_steps(settings)
    raise typer.Exit(code)


class Story:
    """The demo's chapters, up to Spark."""

    def __init__(
        self, book: Book, settings: StackSettings, shop: Shop, script: Script, concurrency: int
    ) -> None:
        self._book = book
        self._settings = settings
        self._script = script
        self._concurrency = concurrency
        self._shop = shop

    def run(self) -> None:
        """Raises httpx.HTTPError, NotAtRest; ends with exit code 1 where an outcome is not the data's."""
        plan, tally = self._load(self._script.bulk)
        self._await_rest()
        show_load(plan, tally)
        results.print(_census_line(before := census(self._shop)))
        self._again(before)
        self._by_hand()
        self._load(self._script.live)
        self._await_rest()
        results.print(_census_line(census(self._shop)))
        self._query()

    def _load(self, days: tuple[date, date]) -> tuple[LoadPlan, Tally]:
        _chapter(f"The invoices of {days[0]} to {days[1]}, over HTTP")
        return send(self._book, self._period(days), self._settings, self._concurrency)

    def _again(self, before: Census) -> None:
        _, tally = self._load(self._script.again)
        self._await_rest()
        after, total = census(self._shop), tally.total()
        results.print(
            f"loaded again: {total.commands:,} commands, {total.replayed:,} with the same response as before"
        )
        if after != before:
            fail(f"a second load changed the shop: {before} became {after}")
        results.print("nothing has changed")

    def _by_hand(self) -> None:
        _chapter("Read your own writes: place an order, then read it at once with the write's token")
        table = Table("order", "lines", "written in ms", "read in ms", "version", "status")
        plan = planned(self._book, self._period(self._script.live), self._settings)
        for own in write_and_read(plan, client_urls(self._settings), self._shop, BY_HAND):
            if own.read_code != httpx.codes.OK:
                fail(f"order {own.order_id} was not visible with its token: {own.read_status}")
            times = (f"{own.write_ms:.0f}", f"{own.read_ms:.0f}")
            table.add_row(own.order_id, str(own.lines), *times, str(own.read_version), own.read_status)
        results.print(table)

    def _query(self) -> None:
        _chapter("Queries to the read models")
        first, last = self._script.bulk[0], self._script.live[1]
        days = self._shop.read("/sales/daily", **{"from": str(first), "to": str(last), "country": "Germany"})[
            "days"
        ]
        results.print(f"GET /sales/daily?from={first}&to={last}&country=Germany")
        results.print(_sales_table(days[:SHOWN_DAYS]))
        for order in self._shop.read("/orders", status="rejected", limit=1)["orders"]:
            path = f"/orders/{order['order_id']}/history"
            events = [event["type"].rpartition(".")[2] for event in self._shop.read(path)["events"]]
            results.print(f"GET {path}: {' → '.join(events)}")

    def _period(self, days: tuple[date, date]) -> Period:
        return Period(*days, loaded_since(days[0], read_loaded(self._settings.home)))

    def _await_rest(self) -> None:
        with notes.status("Waiting until every conversation is settled") as status:

            def seen(rest: Rest) -> None:
                status.update(f"Waiting until every conversation is settled: {rest}")

            self._shop.await_rest(REST_SECONDS, seen)


def _opened() -> StackSettings:
    """The settings of the running stack; it is started if it is not up."""
    settings = StackSettings()
    if platform_of(settings).up(Site(settings)):
        notes.print("The shop is already running.")
    else:
        _chapter("Starting the shop")
        up(only="")
    return client_settings()


def _prove(book: Book, settings: StackSettings) -> int:
    """Spark's mart and the audit; the audit's exit code."""
    _chapter("Spark replays the whole log")
    home = settings.home.absolute()
    revenue = run_job("analytics.jobs.marts", ["daily_revenue", "--out", str(home / "marts")], settings)
    if revenue != IDENTICAL:
        return revenue
    expected = expected_now(book, settings)
    differing = mart_differences(home / "marts" / "daily_revenue", expected)
    results.print(f"Spark's daily revenue: {len(expected.days)} days and countries, {len(differing)} differ")
    for day, country in differing:
        results.print(f"differs: {day} {country}")
    expectation = write_expectation(expected, settings).absolute()
    _chapter("The audit: the log, the read models, Spark, and the loaded data")
    arguments = ["--expectation", str(expectation), "--out", str(home / "audit")]
    return run_job("analytics.jobs.audit", arguments, settings) or int(bool(differing))


def _show_next_steps(settings: StackSettings) -> None:
    _chapter("Where to look next")
    addresses = {"order-api": "place an order", "inventory-api": "receive stock", "query-api": "query"}
    for name, about in addresses.items():
        results.print(f"{settings.url(name)}/docs  {about}")
    january = f"{settings.typed} load --from 2011-01-01 --to 2011-01-31"
    results.print(f"{january}   January, which returns goods of December")
    further = (f"{settings.typed} {command}" for command in ("status", "logs order-worker", "topics", "down"))
    results.print(" · ".join(further))


def _census_line(counted: Census) -> str:
    orders = ", ".join(f"{count:,} {status}" for status, count in sorted(counted.statuses.items()))
    return f"in the shop: {counted.events:,} events of {counted.skus:,} SKUs and of orders: {orders}"


def _sales_table(days: list[dict[str, Any]]) -> Table:
    columns = ("day", "orders", "units", "gross", "returned", "net")
    return Table(*columns, rows=([str(day[name]) for name in columns] for day in days))


def _chapter(title: str) -> None:
    results.print()
    results.print(title, style="bold")
