"""`daybook replay`: fills read models in bulk from the log or the lake, or moves a consumer group back to a time."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from confluent_kafka import KafkaException

from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli.audit import lake_location
from infra.cli.inspect import Kafka, broker_at
from infra.cli.output import fail, notes, results
from infra.cli.rebuild import NAMES, build, projection_settings
from infra.log.positions import Rewind, plan, rewind
from services.kernel.record.envelope import format_time, parse_time
from services.projection.engine.settings import ProjectionSettings

if TYPE_CHECKING:
    from services.projection.engine.rebuild import Lake

app = typer.Typer()
ALL = "all"


@app.command()
def replay(
    into: Annotated[
        list[str] | None,
        typer.Option(metavar="READ_MODEL", help=f"{', '.join(NAMES)}, or {ALL}; may be repeated."),
    ] = None,
    source: Annotated[
        Literal["log", "lake"], typer.Option("--from", help="The lake as far as it goes, or the log alone.")
    ] = "log",
    lake: Annotated[
        str, typer.Option(help="The lake's folder or URI; default: DAYBOOK_LAKE, or in .daybook/.")
    ] = "",
    group: Annotated[str, typer.Option(help="Instead of a read model: a consumer group of your own.")] = "",
    topic: Annotated[list[str] | None, typer.Option(help="What the group reads; may be repeated.")] = None,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="The time to go back to: 2026-03-01T12:00:00Z, or an age: 15m."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before moving the group.")] = False,
    kafka: Kafka = "",
) -> None:
    """Rebuild read models in bulk from the first event, without downtime.

    One reading of the log fills several. The live tables serve queries until the new ones have caught up; then
    the new ones replace them, one read model after the other. Safe to interrupt.

    With --group, --topic and --since, move a stopped consumer group back to a time instead. Shows how many
    records it will receive twice, then asks.
    """
    match bool(into), (bool(group), bool(topic), bool(since)):
        case True, (False, False, False):
            _fill(into or [], source, lake)
        case False, (True, True, True):
            begin_again(broker_at(kafka), group, topic or [], since, confirm=not yes)
        case _:
            fail("use either --into READ_MODEL, or --group, --topic and --since together")


def _fill(into: list[str], source: Literal["log", "lake"], lake: str) -> None:
    unknown = [name for name in into if name not in (*NAMES, ALL)]
    if unknown:
        fail(f"there is no read model {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = NAMES if ALL in into else into
    folder = lake_location(StackSettings(), lake) if source == "lake" else None
    began = time.perf_counter()
    settings = projection_settings()
    events = build(names, settings, _lake(settings, folder) if folder else None)
    seconds = time.perf_counter() - began
    notes.print(f"{seconds:.1f} s, {events / seconds:,.0f} events/s")


def _lake(settings: ProjectionSettings, folder: str) -> Lake:
    # Imported here: PyArrow is slow to import, and the other commands do not need it.
    from analytics.lake.tables import NoLake
    from analytics.lake.writer import LakeLogReplaced
    from analytics.offsets import LogUnreachable
    from infra.log.lake_runs import lake_for

    try:
        return lake_for(settings.kafka, folder)
    except (LakeLogReplaced, NoLake, LogUnreachable) as error:
        fail(str(error))


_AGE = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def begin_again(kafka: str, group: str, topics: Sequence[str], since: str, *, confirm: bool) -> None:
    """Show how many records come twice, ask, and move the group. Exit code 1 where it cannot or may not be moved."""
    try:
        moment = moment_of(since, time.time_ns() // 1_000_000)
    except ValueError as error:
        fail(f"{since!r} is no time: {error}")
    try:
        with notes.status("Counting the records that are received twice"):
            planned = plan(kafka, group, topics, moment)
        _show(planned, f"{group} at {kafka}", moment)
        if not any(rewind.moves for rewind in planned):
            notes.print("Every position is already at or before that time: nothing to move.")
            return
        if confirm:
            typer.confirm(f"Move {group} at {kafka}?", abort=True, err=True)
        rewind(kafka, group, planned)
    except (KafkaException, TimeoutError) as error:
        fail(
            f"the broker at {kafka} does not respond ({error}): is it running? `./daybook up` starts the stack"
        )
    notes.print(f"{group} starts from there.")


def moment_of(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of a time with its offset, or of an age: `90s`, `15m`, `2h`, `3d`.

    Raises ValueError.
    """
    if age := _AGE.fullmatch(text):
        return now_ms - int(age[1]) * _SECONDS[age[2]] * 1000
    return parse_time(text) // 1000


def _show(planned: Sequence[Rewind], who: str, moment: int) -> None:
    table = Table("partition", "position", "begins at", "records that come again")
    for partition in planned:
        position = "none" if partition.committed is None else str(partition.committed)
        again = f"{'' if partition.exact else 'at most '}{partition.again:,}"
        table.add_row(f"{partition.topic}/{partition.partition}", position, str(partition.start), again)
    results.print(table)
    total = sum(partition.again for partition in planned)
    unknown = any(partition.committed is None for partition in planned)
    bound = "" if all(partition.exact for partition in planned) and not unknown else "at most "
    notes.print(f"{who} from {format_time(moment * 1000)}: {bound}{total:,} records come again.")
    if unknown:
        notes.print(
            "Without a position here, it is not known what the group read elsewhere: all records are counted."
        )
