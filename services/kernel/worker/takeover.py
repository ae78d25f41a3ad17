"""Takeover after the loss of a site: orders and stock send again what they need of each other.

The mirrored logs may be cut at different points, so that neither shows what the other has. Every command
goes out under its old id, before the first new command is executed; executed twice, it changes nothing.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from contracts.topics import TOPICS
from services.kernel.log.reader import newest_times, offsets_at, read_to_end
from services.kernel.log.transactions import produce_all
from services.kernel.model.process import OutgoingCommand
from services.kernel.record.codec import decode
from services.kernel.record.envelope import SYSTEM, AuthContext, now_micros, read_headers
from services.kernel.worker.execution import Executor
from services.kernel.worker.slot import Slot

MARGIN_MS = 120_000
CHUNK = 500


def take_over(slot: Slot[Any, Any, Any], executor: Executor[Any, Any, Any], hours: float) -> int:
    """Send the commands of recent events of the log again, and those of every open claim.

    Returns how many went out, in transactions of their own. How recent: see `horizon`, at most `hours` before
    the newest event; a site that was down for a day loses none. Raises `OwnershipLost` or `Aborted`.
    """
    sent, now = 0, now_micros()
    commands = _resent_commands(slot, hours)
    while chunk := list(islice(commands, CHUNK)):
        groups = [
            group
            for key, command, auth in chunk
            for group in executor.routing.outgoing(key, [command], key, key, auth=auth)
        ]
        records = list(executor.routing.records(groups, now, ""))
        slot.transactions.run_again(partial(produce_all, records))
        sent += len(chunk)
    return sent


def _resent_commands(
    slot: Slot[Any, Any, Any], hours: float
) -> Iterator[tuple[str, OutgoingCommand, AuthContext]]:
    """Each command once, with the entity that sends it, and with who caused its event, where it follows from one; an
    entity's commands in the order of its events."""
    process, topic = slot.aggregate.process, TOPICS[slot.aggregate.name].events
    seen: set[str] = set()
    touched: dict[tuple[int, str], None] = dict.fromkeys(sorted(slot.fold.open_entities))
    for record in read_to_end(slot.config.bootstrap, topic, _starts(slot, topic, hours)):
        if not slot.fold.applied(record):
            continue
        number, key = record.partition(), record.key().decode()
        touched[number, key] = None
        state, auth = slot.partitions[number].get(key).state, read_headers(record.headers()).auth
        for command in process.again(decode(record.value()), state, slot.epoch):
            if command.id not in seen:
                seen.add(command.id)
                yield key, command, auth
    for number, key in touched:
        for command in process.claims(slot.partitions[number].get(key).state):
            if command.id not in seen:
                seen.add(command.id)
                yield key, command, SYSTEM


def _starts(slot: Slot[Any, Any, Any], topic: str, hours: float) -> dict[int, int]:
    """The offset in each partition at which what may have been cut off begins."""
    bootstrap = slot.config.bootstrap
    newest = [time for topics in TOPICS.values() for time in newest_times(bootstrap, topics.events)]
    starts = offsets_at(bootstrap, topic, horizon(newest, int(hours * 3_600_000), MARGIN_MS))
    return {number: starts[number] for number in slot.partitions}


def horizon(newest: Iterable[int], longest: int, margin: int) -> int:
    """From when on one log may know what another has lost; all times in ms.

    `newest` is the time of the last event of each partition. What ended before all of them is in all of them;
    `margin` is for clocks, and for outcomes under way. A partition that has been silent for longer than
    `longest` is considered idle, not cut: no mirror lags that unevenly.
    """
    times = sorted(newest)
    if not times:
        return 0
    recent = min(time for time in times if time >= times[-1] - longest)
    return max(0, times[-1] - longest, recent - margin)
