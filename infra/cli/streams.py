"""`daybook streams`: streams that stopped, foreign records, and an operator's decision between records."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

from analytics.terminal import Table, plain
from contracts.kernel.records import RecordVerdict
from infra.base.settings import StackSettings
from infra.cli.acts import ReasonOption, recorded
from infra.cli.inspect import Kafka, broker_at
from infra.cli.output import AsJson, fail, notes, print_json, results
from infra.cli.parked import DatabaseUrl, database_address, since, store_errors
from infra.log.parked import query
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
from services.kernel.log.control import read_control, read_journal
from services.kernel.log.rule import REASONS
from services.kernel.record.envelope import format_time

app = typer.Typer(no_args_is_help=True, help="Streams that stopped, and foreign records: show, and decide.")
SHOWN = 50  # foreign records in one list
SHOWN_BYTES = 200
AROUND = 1  # versions shown on either side of the one where a stream stopped

Stream = Annotated[str, typer.Argument(help="order/<order id> or stock/<SKU>.")]


@app.command("list")
def list_streams(kafka: Kafka = "", database_url: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """Show the streams that stopped, and foreign records, newest first."""
    with _failing():
        journal = read_journal(broker_at(kafka))
        url = database_url or database_address()
        stopped = query(url, lambda connection: stopped_streams(connection, journal))
        count = query(url, foreign_count)
        foreign = query(url, lambda connection: foreign_records(connection, SHOWN))
    if as_json:
        print_json({"stopped": stopped, "foreign_count": count, "foreign": foreign})
        return
    if stopped:
        results.print(_stopped(stopped))
        notes.print("`./daybook streams show STREAM` shows the records of one.")
    if foreign:
        rows = ((record.position, since(record.seen_at), REASONS[record.reason]) for record in foreign)
        results.print(Table("foreign record", "since", "why", rows=rows, whole=True))
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
        broker = broker_at(kafka)
        records = [record_at(broker, what)] if what.count("/") == 2 else records_of(broker, what)
    if not everything:
        records = _around_the_stop(records)
    if as_json:
        print_json([record_as_json(record) for record in records])
        return
    for record in records:
        show_record(record)
    if any(record.meaning.startswith("stops") for record in records):
        notes.print(f"Decide: `./daybook streams resolve {what} --version N --keep EVENT --reason …`,")
        notes.print("or about one record alone: `--event EVENT --as foreign`.")


@app.command()
def resolve(
    stream: Stream,
    version: Annotated[int, typer.Option(min=1, help="The version of the record.")],
    reason: ReasonOption,
    event: Annotated[str, typer.Option(metavar="ID", help="The event id of the record.")] = "",
    verdict: Annotated[
        Literal["foreign", "genuine"], typer.Option("--as", help="What the record is.")
    ] = "foreign",
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
        broker = broker_at(kafka)
        _require_active(broker)
        records = at_version(records_of(broker, stream), version)
    named = _named(records, event or keep, digest, f"{plain(stream)} at version {version}")
    decided: list[tuple[StreamRecord, RecordVerdict]] = [(named, verdict)]
    if keep:
        decided = [(record, "genuine" if record is named else "foreign") for record in records]
    for record, judged in decided:
        show_record(record)
        results.print(f"  decided: {judged}")
    if not yes:
        typer.confirm(f"Decide this about {plain(stream)}, at both sites, for ever?", abort=True, err=True)
    with _failing(), recorded("streams resolve", f"{stream} version {version}", reason, broker):
        _require_active(broker)  # the answer may have taken minutes
        judge(broker, stream, decided, reason)
    notes.print(DECIDED)


DECIDED = (
    "Decided. The worker and the read models fold the stream again within seconds; `./daybook streams list` shows "
    "whether it is still stopped."
)


def _named(records: Sequence[StreamRecord], event: str, digest: str, where: str) -> StreamRecord:
    """The record with this event id; ends the command where there is none, or more."""
    named = [record for record in records if record.event_id == event and record.digest.startswith(digest)]
    if not named:
        fail(f"there is no such event of {where}: `./daybook streams show STREAM --all` shows what there is")
    if len(named) > 1:
        digests = " or ".join(record.digest[:12] for record in named)
        fail(f"{len(named)} records of {where} have this event id: add --digest {digests}")
    return named[0]


def _require_active(kafka: str) -> None:
    """Decisions are mirrored from the active site: one written at the other would be lost."""
    if read_control(kafka).role.role == "active":
        return
    other = peer(StackSettings())
    active = f"`./daybook --site {other.name} streams resolve …`" if other else "the other site"
    fail(f"this site is passive, and decisions are written at the active one: use {active}")


def _stopped(stopped: Iterable[StoppedStream]) -> Table:
    table = Table("stream", "stopped at", "why", "read models", "waiting", "since", whole=True)
    for record in stopped:
        about = (record.stream, f"version {record.version}", f"{record.kind}: {record.reason}")
        waiting = (", ".join(record.read_models) or "none", str(record.events))
        table.add_row(*about, *waiting, "-" if record.since is None else since(record.since))
    return table


def _around_the_stop(records: Sequence[StreamRecord]) -> list[StreamRecord]:
    """The records at the version where the stream stops, and at the versions beside it."""
    stops = [own.metadata.version for own in records if own.metadata and own.meaning.startswith("stops")]
    if not stops:
        return list(records)
    return [own for own in records if own.metadata is None or abs(own.metadata.version - stops[0]) <= AROUND]


@contextmanager
def _failing() -> Iterator[None]:
    with store_errors("nothing is known about streams"):
        try:
            yield
        except NoSuchRecord as error:
            fail(plain(str(error), None))


def show_record(record: StreamRecord) -> None:
    """Print one record completely, and the beginning of long bytes."""
    meta = record.metadata
    results.print(f"{record.position} {record.meaning}".rstrip())
    if meta is None:
        for name, text in record.headers:
            results.print(f"  {name}: {text!r}")
    else:
        results.print(f"  version {meta.version}, event {meta.id}, epoch {meta.epoch}, {meta.type}")
        results.print(f"  recorded {format_time(meta.recorded_at)} by {meta.source}")
    results.print(f"  key {record.key!r}, sha256 {record.digest}")
    results.print(f"  {record.body if record.body is not None else _bytes(record.value)}")


def _bytes(value: bytes | None) -> str:
    if value is None:
        return "no value"
    more = f" … {len(value)} bytes" if len(value) > SHOWN_BYTES else ""
    return f"cannot be read: {value[:SHOWN_BYTES].hex()}{more}"


def record_as_json(record: StreamRecord) -> dict[str, Any]:
    """A record for other tools; bytes are Base64."""
    meta = record.metadata
    return {
        "position": record.position,
        "meaning": record.meaning,
        "key": record.key,
        "headers": record.headers,
        "version": meta and meta.version,
        "event_id": meta and meta.id,
        "epoch": meta and meta.epoch,
        "recorded_at": meta and format_time(meta.recorded_at),
        "type": meta and meta.type,
        "sha256": record.digest,
        "body": record.body,
        "value": record.value,
    }
