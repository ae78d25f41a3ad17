"""What one site's log holds and another's does not: events by their ids, answers by entity and command id.

Foreign records, also among the answers, are not of the log, and openings of epochs are no events: neither is
ever lost.

Each log is streamed; what is kept is the ids of one partition at a time (16 bytes each) and what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from confluent_kafka import Message

from contracts.kernel.records import Outcome
from contracts.topics import TOPICS
from infra.log.event_log import read_log
from services.kernel.log.foreign import answer_of
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import FIRST_EPOCH, Event, epoch_after
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import Metadata

# Orders first: which stock events belong to a torn conversation is only known after them.
EVENTS = tuple(own.events for own in TOPICS.values())
ANSWERS = tuple(own.answers for own in TOPICS.values())
# A stock event may carry an earlier time than the order event that it follows: each service has its clock.
CLOCK_MICROS = 60_000_000

Place = tuple[str, int]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class LostEvent:
    """One event of the old log that is not in the new one, and where it stood. `event` is None where this
    code cannot decode it."""

    topic: str
    partition: int
    offset: int
    metadata: Metadata
    event: Any

    @property
    def order_id(self) -> str:
        """The order that it is about; empty for a stock event of no order."""
        return str(getattr(self.event, "order_id", ""))


@dataclass(frozen=True)
class LostAnswer:
    """An outcome without events (a refusal, mostly) that did not cross; `recorded_at` is micros UTC."""

    topic: str
    partition: int
    offset: int
    outcome: Outcome
    recorded_at: int


@dataclass(frozen=True)
class Again:
    """What the new site made of a command whose first outcome was lost; `kind` as in an outcome."""

    kind: str
    version: int
    event_id: str


@dataclass(frozen=True)
class Parted:
    """The new site has another event at the version of a lost one."""

    topic: str
    subject: str
    version: int
    lost_id: str
    lost_type: str
    new_id: str
    new_type: str


@dataclass
class LogDifference:
    """`held` are stock events that did cross, near the cut; `again` is by command id; `continued` is the
    first offset of each partition of the new log whose record may be the new site's own, `epochs` the epoch
    that is open there."""

    events: list[LostEvent] = field(default_factory=list)
    answers: list[LostAnswer] = field(default_factory=list)
    held: list[LostEvent] = field(default_factory=list)
    again: dict[str, Again] = field(default_factory=dict)
    parted: list[Parted] = field(default_factory=list)
    continued: dict[Place, int] = field(default_factory=dict)
    epochs: dict[Place, int] = field(default_factory=dict)


def difference(old: str, new: str, progress: Progress = lambda _: None) -> LogDifference:
    """What the log at `old` (host:port) holds that the one at `new` does not, and what `new` did since.

    Raises NotCaughtUp where a log cannot be read to its end.
    """
    found = LogDifference()
    for topic in EVENTS:
        for number in partitions_of(old, topic):
            progress(f"{topic}/{number}")
            _events(old, new, (topic, number), found)
    for topic in ANSWERS:
        for number in partitions_of(old, topic):
            progress(f"{topic}/{number}")
            _answers(old, new, (topic, number), found)
    if found.events or found.answers:
        progress("what the new site did since")
        _since(new, found)
    return found


def _events(old: str, new: str, place: Place, found: LogDifference) -> None:
    crossed, epochs, end = _known(new, place)
    from_time = min((lost.metadata.recorded_at for lost in found.events), default=None)
    last_epoch = FIRST_EPOCH
    for record, kind in read_log(old, place[0], {place[1]: 0}):
        last_epoch = epoch_after(kind, last_epoch)
        if not isinstance(kind, Event):
            continue
        metadata = kind.metadata
        if _short(metadata.id) not in crossed:
            found.events.append(_lost(record, metadata, place))
        elif place[0] != EVENTS[1] or from_time is None:
            continue
        elif metadata.recorded_at >= from_time - CLOCK_MICROS:
            found.held.append(_lost(record, metadata, place))
    later = [offset for epoch, offset in epochs.items() if epoch > last_epoch]
    found.continued[place] = min(later, default=end)
    found.epochs[place] = last_epoch


def _known(new: str, place: Place) -> tuple[set[bytes], dict[int, int], int]:
    """The ids in a partition of the new log, the first offset of each epoch in it, and its end."""
    ids: set[bytes] = set()
    epochs: dict[int, int] = {}
    epoch, end = FIRST_EPOCH, 0
    for record, kind in read_log(new, place[0], {place[1]: 0}):
        epoch = epoch_after(kind, epoch)
        epochs.setdefault(epoch, record.offset())
        if isinstance(kind, Event):
            ids.add(_short(kind.metadata.id))
        end = record.offset() + 1
    return ids, epochs, end


def _short(event_id: str) -> bytes:
    """A forged event may have any text as its id."""
    return blake2b(event_id.encode(), digest_size=16).digest()


def _lost(record: Message, metadata: Metadata, place: Place) -> LostEvent:
    try:
        event = decode(record.value())
    except Undecodable:
        event = None
    return LostEvent(*place, record.offset(), metadata, event)


def _answers(old: str, new: str, place: Place, found: LogDifference) -> None:
    """By entity and command. What retention has removed at the new site already is not lost."""
    crossed: set[tuple[str, str]] = set()
    begin: int | None = None
    kept_from = 0
    for record in read_to_end(new, place[0], {place[1]: 0}):
        begin = record.offset() if begin is None else begin
        if (answer := answer_of(record)) is None:
            continue
        if begin > 0 and not crossed:
            kept_from = answer.recorded_at
        crossed.add((answer.outcome.subject, answer.outcome.command_id))
    for record in read_to_end(old, place[0], {place[1]: 0}):
        if (answer := answer_of(record)) is None:
            continue
        outcome = answer.outcome
        if (outcome.subject, outcome.command_id) in crossed or answer.recorded_at < kept_from:
            continue
        found.answers.append(LostAnswer(*place, record.offset(), outcome, answer.recorded_at))


def _since(new: str, found: LogDifference) -> None:
    """What became of the lost commands and streams at the new site, from where its own records begin."""
    commands = {lost.metadata.causation_id for lost in found.events}
    commands |= {lost.outcome.command_id for lost in found.answers}
    lost_at = {(lost.topic, lost.metadata.subject, lost.metadata.version): lost for lost in found.events}
    for (topic, number), start in found.continued.items():
        opened = {number: found.epochs[topic, number]}
        for _, kind in read_log(new, topic, {number: start}, epochs=opened):
            if not isinstance(kind, Event):
                continue
            meta = kind.metadata
            if meta.causation_id in commands:
                found.again[meta.causation_id] = Again("accepted", meta.version, meta.id)
            was = lost_at.get((topic, meta.subject, meta.version))
            if was is not None and was.metadata.id != meta.id:
                about = (meta.subject, meta.version, was.metadata.id, was.metadata.type, meta.id, meta.type)
                found.parted.append(Parted(topic, *about))
    for outcome in _outcomes(new, ANSWERS):
        if outcome.command_id in commands:
            found.again.setdefault(outcome.command_id, Again(outcome.kind, outcome.version, ""))


def _outcomes(new: str, topics: Sequence[str]) -> Iterable[Outcome]:
    for topic in topics:
        for record in read_to_end(new, topic, dict.fromkeys(partitions_of(new, topic), 0)):
            if (answer := answer_of(record)) is not None:
                yield answer.outcome
