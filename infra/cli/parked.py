"""`daybook parked`: commands and keys of read models that wait for an operator's decision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import asyncpg
import typer
from confluent_kafka import KafkaException

from analytics.terminal import Table, plain
from infra.cli.acts import GIVEN_UP, ReasonOption, Why, operator_id, recorded
from infra.cli.inspect import Kafka, broker_at, running_settings
from infra.cli.output import fail, notes, results
from infra.log.parked import NotParked, at_key, parked_command, parked_commands, query, retry, skip
from infra.stack.shop import OWNER, addresses, database_url
from services.kernel.record.envelope import format_time
from services.projection.engine import parked_keys
from services.projection.engine.parked_keys import NothingParked, ParkedKey, RetryResult, StreamForked
from services.projection.engine.read_model import DATABASE_ERRORS, OtherCode

app = typer.Typer(
    no_args_is_help=True,
    help="Commands that could not be executed, and keys of read models that wait: show, retry, skip.",
)

HINT = "`./daybook up` starts the stack"
NOT_RUN = "the projection has not run yet; `./daybook status` shows whether it does"

DatabaseUrl = Annotated[
    str, typer.Option(envvar="DAYBOOK_DATABASE_URL", help="postgresql://…; default: the running stack's.")
]
# Not from the environment: there, `./daybook env` sets the auditor's.
OwnerUrl = Annotated[
    str, typer.Option("--database-url", help="postgresql://… of the owner; default: the running stack's.")
]
Position = Annotated[
    str, typer.Argument(help="As `list` shows it: topic/partition/offset of a command, or read_model:key.")
]


@app.command("list")
def list_parked(kafka: Kafka = "", database_url: DatabaseUrl = "") -> None:
    """Show what is parked: commands, oldest first, then keys of read models."""
    with _failing():
        broker, database = broker_at(kafka), database_url or database_address()
        commands, waiting = parked_commands(broker), _keys(database)
    if not commands and not waiting:
        notes.print("Nothing is parked.")
        return
    table = Table("position", "since", "what", "entity", "reason", whole=True)
    for parked in commands:
        kind = parked.header("ce_type").removeprefix("daybook.")
        entity, reason = parked.header("ce_subject"), parked.command.reason
        table.add_row(parked.position, since(parked.command.recorded_at), kind, entity, reason)
    for key in waiting:
        what = f"{key.events} event{'s' * (key.events != 1)} from version {key.version}"
        table.add_row(f"{key.read_model}:{key.key}", since(key.parked_at), what, key.key, key.reason)
    results.print(table)


@app.command()
def show(position: Position, kafka: Kafka = "", database_url: DatabaseUrl = "") -> None:
    """Show one command or key completely: reasons, headers, content."""
    with _failing():
        if ":" in position:
            for event in at_key(database_url or database_address(), position, parked_keys.show):
                results.print(
                    f"{event.topic}/{event.partition}/{event.offset} version {event.version}: {event.reason}"
                )
                results.print(f"  {event.metadata}")
                body = (event.value or b"")[:200].hex() if event.body is None else event.body
                results.print(f"  {body}")
            return
        parked = parked_command(broker_at(kafka), position)
    results.print(f"reason: {parked.command.reason}")
    for header in parked.command.headers:
        results.print(f"{header.name}: {header.value.decode(errors='replace')}")
    results.print(parked.content())


@app.command("retry")
def retry_parked(position: Position, kafka: Kafka = "", database_url: OwnerUrl = "", why: Why = "") -> None:
    """Retry: send a command again unchanged, or apply a key's events in order."""
    broker = broker_at(kafka)
    with _failing(), recorded("parked retry", position, why, broker):
        if ":" in position:
            _print_result(at_key(database_url or owner_address(), position, parked_keys.retry))
            return
        retry(broker, parked_command(broker, position), operator_id())
    notes.print(f"{position} was sent again; if it fails again, it is parked under its new position.")


@app.command("skip")
def skip_parked(
    position: Position, reason: ReasonOption = GIVEN_UP, kafka: Kafka = "", database_url: OwnerUrl = ""
) -> None:
    """Skip: drop the command, or exclude the key's first event from the read model."""
    broker = broker_at(kafka)
    with _failing(), recorded("parked skip", position, reason, broker):
        if ":" in position:
            _print_result(
                at_key(
                    database_url or owner_address(),
                    position,
                    lambda connection, model, key: parked_keys.skip(connection, model, key, reason),
                )
            )
            return
        skip(broker, parked_command(broker, position))
    notes.print(f"{position} was skipped.")


@contextmanager
def store_errors(without_table: str) -> Iterator[None]:
    """Ends the command where the broker or the database does not respond, or the projection has never run."""
    try:
        yield
    except asyncpg.UndefinedTableError:
        fail(f"{without_table}: {NOT_RUN}")
    except (KafkaException, TimeoutError) as error:
        fail(f"the broker does not respond ({error}): is it running? {HINT}")
    except DATABASE_ERRORS as error:
        fail(f"the database does not respond ({error}): is it running? {HINT}")


@contextmanager
def _failing() -> Iterator[None]:
    with store_errors("nothing is parked there"):
        try:
            yield
        except (NotParked, NothingParked) as error:
            fail(f"nothing is parked there: {error}; `./daybook parked list` shows what is")
        except StreamForked as error:
            stream = plain(str(error), None)
            fail(
                f"{stream} has forked: decide which record is genuine, see `./daybook streams show {stream}`"
            )
        except OtherCode as error:
            fail(str(error))


def _keys(database_url: str) -> list[ParkedKey]:
    """The parked keys; empty before the first run of the projection, which creates the table."""
    try:
        return query(database_url, parked_keys.parked_keys)
    except asyncpg.UndefinedTableError:
        notes.print(f"No key can be parked: {NOT_RUN}.")
        return []


def database_address() -> str:
    """The running stack's database, as a role that can only read."""
    return addresses(running_settings())["DAYBOOK_DATABASE_URL"]


def owner_address() -> str:
    """The running stack's database, as the role that may write it."""
    return database_url(running_settings(), OWNER)


def since(micros: int) -> str:
    return format_time(micros)[:19] + "Z"


def _print_result(drained: RetryResult) -> None:
    notes.print(f"{drained.applied} applied, {drained.left} left {drained.reason}")
    if drained.left:
        raise typer.Exit(1)
