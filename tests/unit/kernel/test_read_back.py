"""A worker that comes back from its snapshots decides like one that reads the whole log: on every record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from contracts.inventory.events import StockReceived
from contracts.kernel.records import Answer, Outcome, Watermark
from services.inventory.service import INVENTORY
from services.kernel.log.rule import Journal
from services.kernel.record.codec import encode
from services.kernel.record.envelope import format_time
from services.kernel.worker import fold as folding
from services.kernel.worker import restore as restoring
from services.kernel.worker.entities import Entity, Partition
from services.kernel.worker.fold import Fold
from services.kernel.worker.restore import VersionGap
from services.kernel.worker.retry_window import MICROS_PER_HOUR, Window
from services.kernel.worker.snapshots import (
    FORMAT_HEADER,
    STOPPED,
    WATERMARK_KEY,
    SnapshotReader,
    StateCodec,
    seen,
    snapshot_of,
)
from tests.contract.log_rule_cases import KEY, NOW, OTHER, LogRecord, event, opening

EVENTS, ANSWERS, STATE = "inventory.events", "inventory.answers", "inventory.state"
CODEC: StateCodec[Any] = StateCodec(INVENTORY.states)
WINDOW = Window(24.0, 1000)


class Read:
    """A record as the fold receives it from a consumer."""

    def __init__(self, offset: int, record: LogRecord, topic: str = EVENTS) -> None:
        self._offset, self._record, self._topic = offset, record, topic

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Any:
        return list(self._record.headers)

    def timestamp(self) -> tuple[int, int]:
        return 1, NOW // 1000


def new_fold(journal: Journal) -> Fold[Any]:
    decider, reader = INVENTORY.decider, SnapshotReader(CODEC)
    partition = Partition(decider.initial, decider.forget, reader.load, WINDOW)
    return Fold(INVENTORY, CODEC, {0: partition}, 2, set(), {EVENTS: {0: 0}, ANSWERS: {0: 0}}, journal)


def read_all(fold: Fold[Any], log: Iterable[tuple[int, LogRecord]]) -> None:
    with capture_logs():
        for offset, record in log:
            fold.take(Read(offset, record))


class Shop:
    """An owner, its log, and its snapshots: what survives when it is killed."""

    def __init__(self) -> None:
        self.log: list[LogRecord] = []
        self.state: dict[str, LogRecord] = {}
        self.judged = 0
        self.fold = new_fold(Journal())
        self.fold.owner = True

    @property
    def partition(self) -> Partition[Any]:
        return self.fold.partitions[0]

    def write(self, key: str) -> None:
        """A command's event, unless its stream is known to have stopped."""
        if key in self.partition.read.stopped:
            return
        entity = self.partition.get(key)
        record = event(entity.version + 1, key)
        self.log.append(record)
        state = INVENTORY.decider.evolve(entity.state, StockReceived(key, 1, "", NOW))
        self.partition.publish(key, Entity(state, entity.version + 1, NOW))
        self.fold.published(0, key, list(record.headers))  # type: ignore[arg-type]

    def forge(self, key: str, distance: int) -> None:
        """Another writer appends a version near the owner's."""
        version = max(1, self.partition.get(key).version + distance)
        self.log.append(event(version, key, event_id=f"forged-{len(self.log)}", quantity=99))

    def read_back(self, records: int) -> None:
        start = self.partition.read.position
        read_all(self.fold, list(enumerate(self.log))[start : start + records])

    def snapshot(self, whole: bool) -> None:
        """Write snapshots as the writer does; without `whole` it is killed before the watermark."""
        names, read = self.partition.changed(), self.partition.read
        mark = Watermark(read.position, 0, read.epoch, self.judged)
        for key in names:
            headers = [(FORMAT_HEADER, CODEC.format.encode())]
            if key in read.stopped:
                headers.append(STOPPED)
            value = snapshot_of(STATE, CODEC, seen(self.partition, key))
            self.state[key] = LogRecord(key.encode(), value, tuple(headers))
        if whole:
            self.state[WATERMARK_KEY] = LogRecord(WATERMARK_KEY.encode(), encode(STATE, mark), ())
        else:
            for key in names:
                self.partition.dirty.add(key)

    def topic(self, name: str) -> list[LogRecord]:
        return {EVENTS: self.log, STATE: list(self.state.values())}.get(name, [])

    def restored(self) -> Fold[Any]:
        """The fold from snapshots and the tail, by `restore` itself; only the log has no broker."""

        def ends(_: str, topic: str, numbers: list[int]) -> dict[int, int]:
            return dict.fromkeys(numbers, len(self.topic(topic)))

        def records(_: str, topic: str, starts: Mapping[int, int], *_ends: object) -> Iterator[Read]:
            for offset, record in list(enumerate(self.topic(topic)))[starts[0] :]:
                yield Read(offset, record, topic)

        about = CODEC, WINDOW, [0], 2, self.fold.journal
        with pytest.MonkeyPatch.context() as patch, capture_logs():
            patch.setattr(restoring, "read_to_end", records)
            patch.setattr(restoring, "high_watermarks", ends)
            patch.setattr(folding, "read_to_end", records)
            patch.setattr(folding, "high_watermarks", ends)
            return restoring.restore("no broker", INVENTORY, *about)

    def restart(self) -> None:
        """The owner is killed; the next one has fenced it."""
        self.fold = self.restored()
        self.fold.owner, self.judged = True, self.fold.journal.count

    def replayed(self) -> Fold[Any]:
        """The fold from the first record."""
        fold = new_fold(self.fold.journal)
        read_all(fold, enumerate(self.log))
        return fold


def entities_by_key(fold: Fold[Any]) -> dict[str, Entity[Any] | None]:
    """The entities by key; None for a stopped key, whose commands are not executed."""
    partition = fold.partitions[0]
    return {key: None if key in partition.read.stopped else partition.get(key) for key in (KEY, OTHER)}


KEYS = st.sampled_from([KEY, OTHER])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS),
        st.tuples(st.just("write"), KEYS),
        st.tuples(st.just("forge"), KEYS, st.integers(-2, 2)),
        st.tuples(st.just("read_back"), st.integers(0, 4)),
        st.tuples(st.just("snapshot"), st.booleans()),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@example(
    [
        ("write", KEY),
        ("snapshot", True),  # ahead of the log
        ("read_back", 1),
        ("write", OTHER),
        ("snapshot", True),  # its watermark is behind that event
        ("write", KEY),
    ]
)
@example(
    [
        ("write", KEY),
        ("read_back", 1),
        ("snapshot", True),
        ("forge", KEY, 0),
        ("write", KEY),
        ("snapshot", False),
    ]
)
@example(
    [
        ("write", KEY),
        ("snapshot", True),  # ahead of the log
        ("restart",),
        ("write", OTHER),
        ("read_back", 1),
        ("snapshot", True),  # its watermark is behind that event
        ("write", KEY),
    ]
)
@example(
    [
        ("write", KEY),
        ("read_back", 1),
        ("forge", KEY, 0),
        ("read_back", 1),
        ("snapshot", False),  # of a stopped key, and no watermark ever
    ]
)
@given(STEPS)
def test_snapshots_change_nothing_in_what_a_record_is(steps: list[Any]) -> None:
    shop = Shop()
    for name, *how in steps:
        getattr(shop, name)(*how)
    assert entities_by_key(shop.restored()) == entities_by_key(shop.replayed())


@given(STEPS)
def test_an_owner_that_has_read_everything_agrees_with_the_log(steps: list[Any]) -> None:
    """A key that the owner stops is stopped for every other reader too."""
    shop = Shop()
    for name, *how in steps:
        getattr(shop, name)(*how)
    shop.read_back(len(shop.log))
    assert entities_by_key(shop.fold) == entities_by_key(shop.replayed())


def test_an_owner_judges_what_it_did_not_write() -> None:
    shop = Shop()
    shop.write(KEY)
    shop.read_back(1)
    shop.forge(KEY, 1)
    shop.read_back(1)
    (suspect,) = shop.fold.suspects
    assert (suspect.stream, suspect.version, suspect.verdict) == (f"stock/{KEY}", 2, "suspect")
    assert entities_by_key(shop.replayed())[KEY] is None


def test_a_restored_outcome_has_the_epoch_of_its_event() -> None:
    """Also where a later epoch is open: a repeat after a failover gets the token of the first response."""
    first = event(1)
    requested = replace(first, headers=(*first.headers, ("ce_requesthash", b"hash")))
    fold = new_fold(Journal())
    read_all(fold, enumerate([requested, opening(2), event(2, epoch=2)]))
    outcome = fold.partitions[0].outcomes.outcome(KEY, "c")
    assert outcome is not None
    assert (outcome.version, outcome.epoch) == (1, 1)
    loaded = SnapshotReader(CODEC).load(snapshot_of(STATE, CODEC, seen(fold.partitions[0], KEY)))
    assert [recorded.outcome.epoch for recorded in loaded.outcomes] == [1]


def test_an_outcome_outside_the_window_overrides_no_later_one_of_its_command() -> None:
    """A command is decided again after the window. Kafka keeps the recorded outcomes for longer than that."""
    long_ago, requested = NOW - 25 * MICROS_PER_HOUR, ("ce_requesthash", b"hash")
    earlier = event(1).with_header("ce_time", format_time(long_ago).encode()).with_header(*requested)
    fold = new_fold(Journal())
    fold.partitions[0].expire(NOW)
    read_all(fold, enumerate([earlier, event(2).with_header(*requested)]))
    refused = Outcome("c", "T", KEY, "", "refused", 1, (), "", "no", "no", "hash", False)
    recorded = LogRecord(KEY.encode(), encode(ANSWERS, Answer(refused, long_ago)), ())
    fold.take(Read(0, recorded, ANSWERS))
    outcome = fold.partitions[0].outcomes.outcome(KEY, "c")
    assert outcome is not None
    assert (outcome.kind, outcome.event_ids) == ("accepted", (f"{KEY}-2",))


def test_a_log_that_has_lost_its_end_is_not_continued() -> None:
    """Its machine crashed after the snapshots were on its disk, and before these events were."""
    shop = Shop()
    for read in (1, 1):
        shop.write(KEY)
        shop.read_back(read)
    shop.snapshot(whole=True)
    assert shop.restored().partitions[0].get(KEY).version == 2
    del shop.log[-1]
    with pytest.raises(VersionGap, match="ends at 1, its snapshots at 2"):
        shop.restored()


def test_a_foreign_record_among_the_snapshots_is_skipped_whatever_its_key() -> None:
    shop = Shop()
    shop.write(KEY)
    shop.read_back(1)
    shop.snapshot(whole=True)
    shop.state["foreign"] = LogRecord(b"\xff", b"not a snapshot", ())
    assert shop.restored().partitions[0].get(KEY).version == 1
