"""A worker that comes back from its snapshots decides like one that reads the whole log: on every record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from contracts.inventory.events import StockReceived
from services.inventory.service import INVENTORY
from services.kernel.log.rule import Journal
from services.kernel.worker.entities import Entity, Partition
from services.kernel.worker.fold import Fold
from services.kernel.worker.retry_window import Window
from services.kernel.worker.snapshots import SnapshotReader, StateCodec, seen, snapshot_of
from tests.contract.log_rule_cases import KEY, NOW, OTHER, LogRecord, event, opening

EVENTS, STATE = "inventory.events", "inventory.state"
CODEC: StateCodec[Any] = StateCodec(INVENTORY.states)


class Read:
    """A record as the fold receives it from a consumer."""

    def __init__(self, offset: int, record: LogRecord) -> None:
        self._offset, self._record = offset, record

    def topic(self) -> str:
        return EVENTS

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


def new_fold(journal: Journal, restoring: bool = False) -> Fold[Any]:
    decider, reader = INVENTORY.decider, SnapshotReader(CODEC)
    partition = Partition(decider.initial, decider.forget, reader.load, Window(24.0, 1000))
    partition.read.restoring = restoring
    return Fold(INVENTORY, CODEC, {0: partition}, 2, set(), {EVENTS: {0: 0}}, journal)


def read_all(fold: Fold[Any], log: Iterable[tuple[int, LogRecord]]) -> None:
    with capture_logs():
        for offset, record in log:
            fold.take(Read(offset, record))


class Shop:
    """An owner, its log, and its snapshots: what survives when it is killed."""

    def __init__(self) -> None:
        self.log: list[LogRecord] = []
        self.snapshots: dict[str, bytes] = {}
        self.watermark = 0
        self.stopped_in_snapshots: set[str] = set()
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
        names, mark = self.partition.changed(), self.partition.read.position
        for key in names:
            self.stopped_in_snapshots.discard(key)
            if key in self.partition.read.stopped:
                self.stopped_in_snapshots.add(key)
            self.snapshots[key] = snapshot_of(STATE, CODEC, seen(self.partition, key))
        if whole:
            self.watermark = mark
        else:
            for key in names:
                self.partition.dirty.add(key)

    def restored(self) -> Fold[Any]:
        """The fold from snapshots and the tail, as `restore` does it."""
        fold = new_fold(self.fold.journal, restoring=True)
        partition = fold.partitions[0]
        for key, snapshot in self.snapshots.items():
            partition.restore(key, snapshot)
        fold.again, start = frozenset(self.stopped_in_snapshots), self.watermark
        if fold.again:
            fold.whole_from[0], start = self.watermark, 0
        for key in fold.again:
            partition.begin_anew(key)
        read_all(fold, list(enumerate(self.log))[start:])
        assert partition.read.end_restoring() is None
        return fold

    def restart(self) -> None:
        """The owner is killed; the next one has fenced it."""
        self.fold = self.restored()
        self.fold.owner = True
        self.partition.read.position = len(self.log)

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
