"""Taking over after a site was lost: what orders and stock need of each other is asked for again.

The mirrored logs may be cut at different points, so that neither says what the other has. Every ask goes out
under its old id, before the first new command is executed; asked twice, it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from confluent_kafka import Producer

from contracts.topics import TOPICS
from services.kernel.log.reader import newest_times, offsets_at, read_to_end
from services.kernel.log.transactions import produce
from services.kernel.model.process import Ask
from services.kernel.record.codec import decode
from services.kernel.record.envelope import now_micros, write_headers
from services.kernel.worker.execution import Executor
from services.kernel.worker.slot import Slot
from services.kernel.worker.staged import StagedAsk

MARGIN_MS = 120_000
CHUNK = 500


def take_over(slot: Slot[Any, Any, Any], executor: Executor[Any, Any, Any], hours: float) -> int:
    """Ask again for what recent events of the log asked for, and for every open claim.

    How many asks went out, in transactions of their own. How recent: see `horizon`, at most `hours` before
    the newest event; a site that was down for a day loses none. Raises `OwnershipLost` or `Aborted`.
    """
    sent, now = 0, now_micros()
    asks = (
        staged for key, ask in _asks_again(slot, hours) for staged in executor.asks(key, [ask], key, key, now)
    )
    while chunk := list(islice(asks, CHUNK)):
        _send(slot, chunk)
        sent += len(chunk)
    return sent


def _send(slot: Slot[Any, Any, Any], chunk: list[StagedAsk]) -> None:
    def stage(producer: Producer) -> None:
        for ask in chunk:
            produce(producer, ask.topic, ask.value, ask.key, headers=write_headers(ask.metadata))

    slot.transactions.run_again(stage)


def _asks_again(slot: Slot[Any, Any, Any], hours: float) -> Iterator[tuple[str, Ask]]:
    """Each ask once, with the entity that asks; an entity's asks in the order of its events."""
    process, topic = slot.aggregate.process, TOPICS[slot.aggregate.name].events
    asked: set[str] = set()
    touched: dict[tuple[int, str], None] = dict.fromkeys(sorted(slot.fold.open_entities))
    for record in read_to_end(slot.config.bootstrap, topic, _starts(slot, topic, hours)):
        if not slot.fold.applied(record):
            continue
        number, key = record.partition(), record.key().decode()
        touched[number, key] = None
        state = slot.partitions[number].get(key).state
        for ask in process.again(decode(record.value()), state, slot.epoch):
            if ask.id not in asked:
                asked.add(ask.id)
                yield key, ask
    for number, key in touched:
        for ask in process.claims(slot.partitions[number].get(key).state):
            if ask.id not in asked:
                asked.add(ask.id)
                yield key, ask


def _starts(slot: Slot[Any, Any, Any], topic: str, hours: float) -> dict[int, int]:
    """The offset in each partition at which what may have been cut off begins."""
    bootstrap = slot.config.bootstrap
    newest = [time for topics in TOPICS.values() for time in newest_times(bootstrap, topics.events)]
    since = horizon(newest, int(hours * 3_600_000), MARGIN_MS)
    starts = offsets_at(bootstrap, topic, since)
    return {number: starts[number] for number in slot.partitions}


def horizon(newest: Iterable[int], longest: int, margin: int) -> int:
    """From when on one log may know what another has lost; all times in ms.

    `newest` is the time of the last event of each partition. What ended before all of them is in all of them;
    `margin` is for clocks, and for answers under way. A partition that has been silent for longer than
    `longest` is taken for quiet, not for cut: no mirror is that much uneven.
    """
    times = sorted(newest)
    if not times:
        return 0
    recent = min(time for time in times if time >= times[-1] - longest)
    return max(0, times[-1] - longest, recent - margin)
