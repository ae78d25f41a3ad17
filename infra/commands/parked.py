"""`daybook parked`: commands that could not be executed, until somebody decides."""

from collections.abc import Callable
from typing import Annotated

import typer
from confluent_kafka import KafkaException
from rich.table import Table

from infra.commands.inspect import running_settings
from infra.commands.output import fail, notes, results
from infra.embedded.journal import Journal
from infra.parked import NotParked, Parked, parked_command, parked_commands, retry, skip
from infra.settings import StackSettings
from services.kernel.envelope import format_time

app = typer.Typer(no_args_is_help=True, help="Commands that could not be executed: look, try again, give up.")

Broker = Annotated[
    str, typer.Option("--kafka", envvar="DAYBOOK_KAFKA", help="host:port; without it, the running stack's.")
]
Position = Annotated[str, typer.Argument(help="topic/partition/offset, as `daybook parked list` shows it.")]


@app.command("list")
def list_parked(kafka: Broker = "") -> None:
    """Show what is parked, oldest first."""
    found = parked_commands(_broker(kafka))
    if not found:
        notes.print("Nothing is parked.")
        return
    table = Table("position", "since", "command", "entity", "reason")
    for parked in found:
        since = format_time(parked.command.recorded_at)[:19] + "Z"
        kind = parked.header("ce_type").removeprefix("daybook.")
        table.add_row(parked.position, since, kind, parked.header("ce_subject"), parked.command.reason)
    results.print(table)


@app.command()
def show(position: Position, kafka: Broker = "") -> None:
    """Show one command whole: reason, headers, content."""
    parked = _find(_broker(kafka), position)
    results.print(f"reason: {parked.command.reason}", markup=False, soft_wrap=True)
    for header in parked.command.headers:
        value = header.value.decode(errors="replace")
        results.print(f"{header.name}: {value}", markup=False, soft_wrap=True)
    results.print(parked.content(), markup=False, soft_wrap=True)


@app.command("retry")
def retry_parked(position: Position, kafka: Broker = "") -> None:
    """Send a command again, as it was, and take it off the list."""
    _settle(kafka, position, retry)
    notes.print(f"{position} was sent again; if it fails again, it is parked under its new position.")


@app.command("skip")
def skip_parked(position: Position, kafka: Broker = "") -> None:
    """Give a command up: it is taken off the list and has no effect."""
    _settle(kafka, position, skip)
    notes.print(f"{position} is given up.")


def _broker(kafka: str) -> str:
    return kafka or running_settings(Journal(StackSettings().home)).kafka


def _find(kafka: str, position: str) -> Parked:
    try:
        return parked_command(kafka, position)
    except NotParked:
        fail(f"nothing is parked at {position}: `./daybook parked list` shows what is")


def _settle(kafka: str, position: str, decide: Callable[[str, Parked], None]) -> None:
    broker = _broker(kafka)
    try:
        decide(broker, _find(broker, position))
    except KafkaException as error:
        fail(f"the broker did not take it: {error}")
