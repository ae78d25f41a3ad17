"""`daybook streams`: streams that stopped, foreign records, and an operator's decision between records."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import asyncpg
import msgspec
import typer
from confluent_kafka import KafkaException

from analytics.terminal import Table, plain
from contracts.kernel.records import RecordVerdict
from infra.base.settings import StackSettings
from infra.cli.output import fail, notes, results
from infra.cli.parked import HINT, NOT_RUN, DatabaseUrl, Kafka, address, since
from infra.cli.stream_records import record_as_json, show_record
from infra.log.parked_keys import asked
from infra.log.streams import (
    NoSuchRecord,
    StoppedStream,
    StreamRecord,
    at_version,
    foreign_count,
    foreign_records,
    judge,
    record_at,
    records_of,
    stopped_streams,
)
from infra.stack.site import peer
from services.kernel.log.control import read_control
from services.kernel.log.journal import read_journal
from services.kernel.log.rule import REASONS

app = typer.Typer(
    no_args_is_help=True,
    help="Streams that stopped, and foreign records: show, and decide.",
)
SHOWN = 50  # foreign records in one list
AROUND = 1  # versions shown on either side of the one where a stream stopped

Stream = Annotated[str, typer.Argument(help="order/<order id> or stock/<SKU>.")]
AsJson = Annotated[bool, typer.Option("--json", help="For other tools.")]


class VerdictChoice(StrEnum):
    foreign = "foreign"
    genuine = "genuine"


@app.command("list")
def list_streams(kafka: Kafka = "", database_url: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """Show the streams that stopped, and foreign records, newest first."""
    with _failing():
        journal = read_journal(kafka or address("DAYBOOK_KAFKA"))
        url = database_url or address("DAYBOOK_DATABASE_URL")
        stopped = asked(url, lambda connection: stopped_streams(connection, journal))
        count = asked(url, foreign_count)
        foreign = asked(url, lambda connection: foreign_records(connection, SHOWN))
    if as_json:
        view = {"stopped": stopped, "foreign_count": count, "foreign": foreign}
        results.print(msgspec.json.encode(view).decode())
        return
    if stopped:
        results.print(_stopped(stopped))
        notes.print("`./daybook streams show STREAM` shows the records of one.")
    if foreign:
        table = Table("foreign record", "since", "why", whole=True)
        for one in foreign:
            table.add_row(one.position, since(one.seen_at), REASONS[one.reason])
        results.print(table)
        shown = f"{count} foreign records were skipped" + (
            f"; the newest {len(foreign)} are shown" if count > len(foreign) else ""
        )
        notes.print(f"{shown}. `./daybook streams show POSITION` shows one with its bytes.")
    if not stopped and not foreign:
        notes.print("No stream has stopped, and the log has no foreign record.")


@app.command()
def show(
    what: Annotated[
        str, typer.Argument(help="A stream, order/ID or stock/SKU, or a position, order.events/0/17.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="All versions, not only those where it stopped.")
    ] = False,
    kafka: Kafka = "",
    as_json: AsJson = False,
) -> None:
    """Show the records of a stream around the version where it stopped, or one record."""
    with _failing():
        broker = kafka or address("DAYBOOK_KAFKA")
        records = [record_at(broker, what)] if what.count("/") == 2 else records_of(broker, what)
    if not everything:
        records = _around_the_stop(records)
    if as_json:
        results.print(
            msgspec.json.encode([record_as_json(record) for record in records]).decode(),
        )
        return
    for record in records:
        show_record(record)
    if any(record.meaning.startswith("stops") for record in records):
        notes.print(
            f"Decide: `./daybook streams resolve {what} --version N --keep EVENT --reason …`,",
        )
        notes.print("or about one record alone: `--event EVENT --as foreign`.")


@app.command()
def resolve(
    stream: Stream,
    version: Annotated[int, typer.Option(min=1, help="The version of the record.")],
    reason: Annotated[str, typer.Option(help="Why; stored with the decision.")],
    event: Annotated[str, typer.Option(metavar="ID", help="The event id of the record.")] = "",
    verdict: Annotated[
        VerdictChoice, typer.Option("--as", help="What the record is.")
    ] = VerdictChoice.foreign,
    keep: Annotated[
        str, typer.Option(metavar="ID", help="Instead: all other records of the version are foreign.")
    ] = "",
    digest: Annotated[
        str, typer.Option(metavar="SHA256", help="With equal event ids: the digest of the value.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    kafka: Kafka = "",
) -> None:
    """Decide whether a record is foreign (every reader skips it) or genuine (it counts once).

    Both sites honour the decision, for ever: they fold the stream again from its first version. A later
    decision about the same record replaces it.
    """
    if bool(event) == bool(keep):
        fail("name one record: --event ID, or --keep ID to judge all others of the version foreign")
    with _failing():
        broker = kafka or address("DAYBOOK_KAFKA")
        _require_active(broker)
        records = at_version(records_of(broker, stream), version)
    named = _named(records, event or keep, digest, f"{plain(stream)} at version {version}")
    decided: list[tuple[StreamRecord, RecordVerdict]] = [(named, verdict.value)]
    if keep:
        decided = [(one, "genuine" if one is named else "foreign") for one in records]
    for record, judged in decided:
        show_record(record)
        results.print(f"  decided: {judged}")
    if not yes:
        typer.confirm(f"Decide this about {plain(stream)}, at both sites, for ever?", abort=True, err=True)
    with _failing():
        judge(broker, stream, decided, reason)
    notes.print(
        "Decided. The worker and the read models fold the stream again within seconds; "
        "`./daybook streams list` shows whether it is still stopped.",
    )


def _named(records: Sequence[StreamRecord], event: str, digest: str, where: str) -> StreamRecord:
    """The one that is meant; leaves with exit code 1 where there is none, or more."""
    named = [one for one in records if one.event_id == event and one.digest.startswith(digest)]
    if not named:
        fail(f"there is no such event of {where}: `./daybook streams show STREAM --all` shows what there is")
    if len(named) > 1:
        digests = " or ".join(one.digest[:12] for one in named)
        fail(f"{len(named)} records of {where} have this event id: add --digest {digests}")
    return named[0]


def _require_active(kafka: str) -> None:
    """Decisions are mirrored from the active site: one that is written elsewhere would be lost."""
    if read_control(kafka).role.role == "active":
        return
    other = peer(StackSettings())
    active = f"`./daybook --site {other.name} streams resolve …`" if other else "the other site"
    fail(f"this site is passive, and decisions are written at the active one: use {active}")


def _stopped(stopped: Iterable[StoppedStream]) -> Table:
    table = Table("stream", "stopped at", "why", "read models", "waiting", "since", whole=True)
    for one in stopped:
        table.add_row(
            one.stream,
            f"version {one.version}",
            f"{one.kind}: {one.reason}",
            ", ".join(one.read_models) or "none",
            str(one.events),
            "-" if one.since is None else since(one.since),
        )
    return table


def _around_the_stop(records: Sequence[StreamRecord]) -> list[StreamRecord]:
    """All records at the version where the stream stops, and of the versions beside it."""
    stops = [one.metadata.version for one in records if one.metadata and one.meaning.startswith("stops")]
    if not stops:
        return list(records)
    return [one for one in records if one.metadata is None or abs(one.metadata.version - stops[0]) <= AROUND]


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except NoSuchRecord as error:
        fail(plain(str(error), None))
    except asyncpg.UndefinedTableError:
        fail(f"nothing is known about streams: {NOT_RUN}")
    except (KafkaException, TimeoutError) as error:
        fail(f"the broker does not respond ({error}): is it running? {HINT}")
    except (asyncpg.PostgresError, OSError) as error:
        fail(f"the database does not respond ({error}): is it running? {HINT}")
