"""`daybook sql`: DuckDB on the lake and the marts."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from analytics.terminal import Table
from infra.cli.audit import lake_location, marts_location
from infra.cli.inspect import own_settings
from infra.cli.output import fail, notes, results
from infra.lab.retail.invoices import write_articles

app = typer.Typer()
MOST_ROWS = 200


@app.command()
def sql(query: Annotated[str, typer.Argument(help="SQL; without it, standard input is read.")] = "") -> None:
    """Query the events and the marts with SQL.

    Each event type that has occurred is a view (order_placed, stock_reserved, …) of what counts, as of the lake's last
    update; each mart that was built is a view; `calendar` has every day from the first event to the last, `articles`
    what each SKU is called. Money is a decimal. `SHOW TABLES` lists them, `DESCRIBE order_placed` its columns,
    `COPY (SELECT …) TO 'file.csv'` writes all rows.
    Needs neither Spark nor a running shop.

    Exit code 1: there is no lake, or a statement failed.
    """
    settings = own_settings()
    location = lake_location(settings)
    if "://" not in location and not Path(location).is_dir():
        fail(f"no lake in {location}: `./daybook up`, then `./daybook analytics lake update` makes it")
    # Imported here: DuckDB and PySpark are slow to import, and the other commands do not need them.
    from analytics.lake.tables import NoLake
    from analytics.lake.views import TABLE_ERRORS, connect
    from analytics.marts.catalogue import built

    articles = settings.home.absolute() / "articles.csv"
    try:
        if not articles.exists() and settings.home.is_dir():
            with notes.status("reading what the articles are called, once"):
                write_articles(articles)
        marts = built(marts_location(settings))
        connection = connect(location, marts, articles if articles.exists() else None)
        if not query and sys.stdin.isatty():
            notes.print("Type SQL, and end it with Ctrl-D.")
        for statement in connection.extract_statements(query or sys.stdin.read()):
            connection.execute(statement)
            table = Table(*(name for name, *_ in connection.description or ()))
            rows = connection.fetchmany(MOST_ROWS + 1)
            for row in rows[:MOST_ROWS]:
                table.add_row(*("–" if value is None else str(value) for value in row))
            results.print(table)
            if len(rows) > MOST_ROWS:
                notes.print(f"the first {MOST_ROWS} rows")
    except (NoLake, OSError, *TABLE_ERRORS) as error:
        fail(str(error).partition("\n\n")[0])  # DeltaError adds a stack
