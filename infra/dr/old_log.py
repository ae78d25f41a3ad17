"""The log of the site that was active before a switch: how it is read, and what of it the new site does not have.

What stands behind the mirror's position was not mirrored. The new site's records from a switch may have come back by
the reversed mirror; they begin with a copy of the new site's first own record, and there the reading ends. So what is
read is what was lost, however long the log is.

Nothing is claimed of a partition whose record at the position is none of the last records before the recorded end at
the new site: it is not the log that was mirrored, or its end is gone. Where the mirror's position itself is missing,
the last mirrored record is searched by its time.

The log of a site that is down is read from its disk: its broker alone is started, and stopped again.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Message

from contracts.kernel.records import Outcome, SiteSwitch, SwitchKind
from contracts.topics import TOPICS
from infra.base.errors import NotDone
from infra.base.waiting import wait_until
from infra.dr.comparison import record_digest
from infra.dr.mirror import mirror_positions
from infra.dr.plan import Show, control_at, ends_of
from infra.log.control import fenced_slots
from infra.log.event_log import decoded, kind_in_any_epoch, read_log
from infra.log.topics import SERVICES, mirrored_topics
from infra.stack.platform import platform_of
from infra.stack.site import Site
from services.kernel.log.completion import settle
from services.kernel.log.control import read_control
from services.kernel.log.reader import (
    Partition,
    high_watermarks,
    offsets_at,
    partitions_by_topic,
    partitions_of,
    read_to_end,
)
from services.kernel.log.rule import FIRST_EPOCH, Event, Foreign, answer_of, epoch_after
from services.kernel.log.transactions import OwnershipLost
from services.kernel.record.envelope import Metadata

EVENTS = tuple(own.events for own in TOPICS.values())
OUTCOMES = tuple(own.answers for own in TOPICS.values())
YOUNG_SECONDS = 60.0
BEFORE_END = 100  # offsets at the new site among which the record at the mirror's position must be


@dataclass(frozen=True)
class LostEvent:
    """One event with its position in its site's log. `event` is None where this code cannot decode it."""

    topic: str
    partition: int
    offset: int
    metadata: Metadata
    event: Any

    @property
    def order_id(self) -> str:
        """The id of its order; empty for a stock event without one."""
        return str(getattr(self.event, "order_id", ""))


@dataclass(frozen=True)
class LostOutcome:
    """An outcome without events (mostly a refusal) that was not mirrored; `recorded_at` is micros UTC."""

    topic: str
    partition: int
    offset: int
    outcome: Outcome
    recorded_at: int


@dataclass(frozen=True)
class UnprovenPart:
    """Offsets of a partition at the old site, from `first` to before `end`, of which nothing can be proven.

    Both are equal where the partition ends there and may have been longer.
    """

    topic: str
    partition: int
    first: int
    end: int
    reason: str


@dataclass
class Unmirrored:
    """`epoch` is the one in which the old site wrote. `searched` are partitions without a position of the mirror."""

    epoch: int = FIRST_EPOCH
    events: list[LostEvent] = field(default_factory=list)
    outcomes: list[LostOutcome] = field(default_factory=list)
    unproven: list[UnprovenPart] = field(default_factory=list)
    searched: list[Partition] = field(default_factory=list)


@dataclass
class Border:
    """Where a partition of the new site's log becomes its own.

    `end` is the recorded offset of its last mirrored record, -1 for none. `mirrored` are the digests of the last
    mirrored records, `time` (ms) is that of the last one, `own` the digest of the first record of its own. Outcomes
    from before `kept_from` (micros) were removed by retention.
    """

    end: int
    mirrored: set[bytes] = field(default_factory=set)
    time: int | None = None
    own: bytes | None = None
    kept_from: int = 0


def unmirrored(old: str | None, new: str, switch: SiteSwitch, show: Show) -> Unmirrored:
    """What the log at `old` (host:port) has and the one at `new` lacks, up to the ends that the switch recorded.

    `old` is None where the log is gone: then only the mirror's positions are known. Raises NotCaughtUp where a log
    cannot be read, TimeoutError where the new site does not respond.
    """
    show("the mirror's positions")
    result, positions = Unmirrored(), mirror_positions(new, switch.source)
    borders: dict[str, dict[int, Border]] = {topic: {} for topic in (*EVENTS, *OUTCOMES)}
    existing = partitions_by_topic(new)
    for (topic, number), end in ends_of(switch).items():
        if topic in borders and number in existing.get(topic, ()):
            borders[topic][number] = Border(end)
    if old is None:
        behind = {(topic, number): 0 for topic, own in borders.items() for number in own} | {
            partition: at + 1 for partition, at in positions.items() if partition[0] in borders
        }
        result.unproven += [
            UnprovenPart(*partition, at, at, "the old log is gone") for partition, at in behind.items()
        ]
        return result
    for topic, own in borders.items():
        show(f"the ends of {topic}")
        result.epoch = max(result.epoch, _look_at(new, topic, own, switch.epoch))
    for topic, own in borders.items():
        show(topic)
        _Tail(old, topic, own, {n: at for (name, n), at in positions.items() if name == topic}).read(
            result, switch.kind, switch.epoch
        )
    return result


def _look_at(new: str, topic: str, borders: Mapping[int, Border], epoch: int) -> int:
    """Complete the borders of a topic. Returns the last epoch before `epoch` in which its mirrored part was written."""
    written, partitions = FIRST_EPOCH, len(partitions_of(new, topic))
    begins = offsets_at(new, topic, 0)
    for number, border in borders.items():
        if begins[number] > border.end + 1:
            border.kept_from = sys.maxsize

    starts = {number: max(0, border.end + 1 - BEFORE_END) for number, border in borders.items()}
    for record in read_to_end(
        new, topic, starts, until=lambda record: borders[record.partition()].own is not None
    ):
        border, recorded = borders[record.partition()], answer_of(record)
        kind = kind_in_any_epoch(record, partitions)
        if record.offset() <= border.end:
            border.mirrored.add(record_digest(record))
            border.time = record.timestamp()[1]
            last = epoch_after(kind, FIRST_EPOCH)
            written = max(written, last) if last < epoch else written
        elif recorded is not None or not isinstance(kind, Foreign):
            border.own = record_digest(record)
            if border.kept_from and recorded is not None:
                border.kept_from = recorded.recorded_at
    return written


class _Tail:
    """Reads the end of one topic of the old log. `positions` are the mirror's, `borders` those at the new site."""

    def __init__(
        self, old: str, topic: str, borders: Mapping[int, Border], positions: Mapping[int, int]
    ) -> None:
        self._old, self._topic, self._borders, self._positions = old, topic, borders, positions
        self._events: dict[int, list[LostEvent]] = defaultdict(list)
        self._outcomes: dict[int, list[LostOutcome]] = defaultdict(list)
        self._matching: set[int] = set()
        self._different: set[int] = set()
        self._mirrored_back: set[int] = set()

    def read(self, result: Unmirrored, kind: SwitchKind, epoch: int) -> None:
        """Add what was not mirrored, partition by partition, or why that cannot be proven."""
        numbers = partitions_by_topic(self._old).get(self._topic, [])
        ends = high_watermarks(self._old, self._topic, numbers) if numbers else {}
        starts = self._starts(numbers)
        if self._topic in EVENTS:
            self._read_events(starts, result.epoch, epoch)
        else:
            self._read_outcomes(starts)
        for number in sorted({*numbers, *self._borders}):
            if reason := self._doubt(number, kind, ends.get(number, 0)):
                end = ends.get(number, 0)
                first = min(starts.get(number, 0), end)
                result.unproven.append(UnprovenPart(self._topic, number, first, end, reason))
                continue
            result.events += self._events[number]
            result.outcomes += self._outcomes[number]
            if number in self._borders and number not in self._positions and self._borders[number].end >= 0:
                result.searched.append((self._topic, number))

    def _starts(self, numbers: Sequence[int]) -> dict[int, int]:
        """The mirror's position; without one, the first offset of the time of the last mirrored record."""
        borders = {number: border for number, border in self._borders.items() if number in numbers}
        starts = {number: 0 for number, border in borders.items() if border.end < 0}
        starts |= {number: at for number, at in self._positions.items() if number in borders}
        searched = {number: border.time for number, border in borders.items() if number not in starts}
        times = [time for time in searched.values() if time is not None]
        if times:
            by_time = offsets_at(self._old, self._topic, min(times))
            starts |= {number: by_time[number] for number, time in searched.items() if time is not None}
        return starts

    def _read_events(self, starts: Mapping[int, int], written: int, epoch: int) -> None:
        epochs = {number: written if start else FIRST_EPOCH for number, start in starts.items()}
        for record, kind in read_log(
            self._old, self._topic, starts, epochs=epochs, until=self._is_mirrored_back
        ):
            if self._is_mirrored(record) or not isinstance(kind, Event) or kind.metadata.epoch >= epoch:
                continue
            self._events[record.partition()].append(lost_event(record, kind.metadata))

    def _read_outcomes(self, starts: Mapping[int, int]) -> None:
        for record in read_to_end(self._old, self._topic, starts, until=self._is_mirrored_back):
            number, recorded = record.partition(), answer_of(record)
            if self._is_mirrored(record) or recorded is None:
                continue
            if recorded.recorded_at >= self._borders[number].kept_from:
                lost = LostOutcome(
                    self._topic, number, record.offset(), recorded.outcome, recorded.recorded_at
                )
                self._outcomes[number].append(lost)

    def _is_mirrored_back(self, record: Message) -> bool:
        if record_digest(record) != self._borders[record.partition()].own:
            return False
        self._mirrored_back.add(record.partition())
        return True

    def _is_mirrored(self, record: Message) -> bool:
        """Whether the new site has it. Nothing before it was lost: the mirror keeps the order."""
        number = record.partition()
        at_position = record.offset() == self._positions.get(number)
        mirrored = record_digest(record) in self._borders[number].mirrored
        if mirrored and number not in self._different:
            self._matching.add(number)
            self._events[number].clear()
            self._outcomes[number].clear()
        elif at_position:
            self._different.add(number)
        return mirrored or at_position

    def _doubt(self, number: int, kind: SwitchKind, end: int) -> str:
        """Why nothing can be proven of a partition; empty where something can."""
        border, position = self._borders.get(number), self._positions.get(number)
        if border is None:
            return "the switch recorded no end of it" if end else ""
        if kind == "unplanned" and number in self._mirrored_back:
            return "the old log was rebuilt from the new one"
        if number in self._matching - self._different or (border.end < 0 and position is None):
            return ""
        another = bool(border.mirrored) and number in self._different
        if self._topic in OUTCOMES and position is not None and position < end and not another:
            return ""  # retention has removed it, at either site
        return "the last mirrored record is not where it was mirrored from"


def lost_event(record: Message, metadata: Metadata) -> LostEvent:
    """The event in a record, decoded where this code can."""
    return LostEvent(record.topic(), record.partition(), record.offset(), metadata, decoded(record.value()))


@contextmanager
def readable(site: Site, show: Show) -> Iterator[str | None]:
    """The address at which the site's log can be read within the block; None where its disk is gone.

    Its role does not change. Raises NotDone.
    """
    if control_at(site.link) is not None:
        yield site.link
        return
    platform = platform_of(site.settings)
    if platform.up(site):
        raise NotDone(
            f"{site.name} runs and cannot be reached: restore the network link (`./daybook sites heal`) or stop it "
            f"(`./daybook --site {site.name} down`)"
        )
    if not platform.has_log(site):
        yield None
        return
    show(f"starting the broker of {site.name} alone")
    with platform.broker_alone(site) as bootstrap:
        # a young broker names itself leader of a partition before it is; every step may be repeated
        wait_until(
            lambda: _settle(bootstrap),
            "the old log is settled",
            YOUNG_SECONDS,
            enough=lambda _: True,
            later=(KafkaException, OwnershipLost),
        )
        yield bootstrap


def _settle(bootstrap: str) -> None:
    """End the transactions that the crash left open, which block every reader, and complete those that were visible."""
    for topic in mirrored_topics():
        high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic))
    control = read_control(bootstrap)
    existing = partitions_by_topic(bootstrap)
    layouts = map(control.layout, SERVICES)
    slots = [slot for layout in layouts for slot in fenced_slots(bootstrap, layout, existing)]
    settle(bootstrap, slots, control.role.epoch)
