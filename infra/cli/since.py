"""The part of `daybook replay` that begins a consumer group again at a moment."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import typer
from confluent_kafka import KafkaException

from analytics.terminal import Table
from infra.cli.inspect import running_settings
from infra.cli.output import fail, notes, results
from infra.log.rewinding import Rewind, plan, rewind
from infra.stack.shop import addresses
from services.kernel.record.envelope import format_time, parse_time

_AGE = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def begin_again(kafka: str, group: str, topics: Sequence[str], since: str, *, ask: bool) -> None:
    """Show the price, ask, move the group. Leaves with exit code 1 where it cannot or may not be moved."""
    try:
        moment = moment_of(since, time.time_ns() // 1_000_000)
    except ValueError as error:
        fail(f"{since!r} is no time: {error}")
    try:
        with notes.status("Counting the records that are received twice"):
            planned = plan(kafka, group, topics, moment)
        _show(planned, f"{group} at {kafka}", moment)
        if not any(one.moves for one in planned):
            notes.print("Every position is already at or before that time: nothing to move.")
            return
        if ask:
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


def running_broker() -> str:
    """The running stack's broker."""
    return addresses(running_settings())["DAYBOOK_KAFKA"]


def _show(planned: Sequence[Rewind], who: str, moment: int) -> None:
    table = Table("partition", "position", "begins at", "records that come again")
    for one in planned:
        position = "none" if one.committed is None else str(one.committed)
        again = f"{'' if one.exact else 'at most '}{one.again:,}"
        table.add_row(f"{one.topic}/{one.partition}", position, str(one.start), again)
    results.print(table)
    total, exact = sum(one.again for one in planned), all(one.exact for one in planned)
    unknown = any(one.committed is None for one in planned)
    bound = "" if exact and not unknown else "at most "
    notes.print(f"{who} from {format_time(moment * 1000)}: {bound}{total:,} records come again.")
    if unknown:
        notes.print(
            "Without a position here, it is not known what the group read elsewhere: all records are counted."
        )
