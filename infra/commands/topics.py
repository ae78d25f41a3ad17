"""`daybook topics`: the catalogue, and whether the broker agrees with it."""

from typing import Annotated

import typer
from rich.table import Table

from infra.commands.inspect import running_settings
from infra.commands.output import fail, notes, results
from infra.embedded.broker import broker_ready
from infra.embedded.journal import Journal
from infra.settings import StackSettings
from infra.topics import catalogue, drift

app = typer.Typer()


@app.command(rich_help_panel="The language")
def topics(
    check: Annotated[bool, typer.Option("--check", help="Compare with the running broker instead.")] = False,
) -> None:
    """Show the catalogue of topics; with --check, list where the broker differs from it (exit code 1)."""
    if not check:
        _show_catalogue()
        return
    settings = running_settings(Journal(StackSettings().home))
    if not broker_ready(settings.kafka):
        fail(f"no broker answers at {settings.kafka}: `./daybook up` starts the stack")
    differences = drift(settings.kafka)
    for difference in differences:
        results.print(difference, markup=False)
    if differences:
        raise typer.Exit(1)
    notes.print("The broker's topics are those of the catalogue.")


def _show_catalogue() -> None:
    table = Table("topic", "key", "partitions", "cleanup", "about")
    for topic in catalogue().values():
        table.add_row(topic.name, topic.key, str(topic.partitions), topic.cleanup, topic.about)
    results.print(table)
