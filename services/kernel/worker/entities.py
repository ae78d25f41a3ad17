"""The entities of one partition in memory, changed only after a commit. An entity is cached as its state, or
evicted: then only its encoded snapshot is kept, which takes less memory and gives a collector nothing to walk
through. It is loaded on the next access. `Staged` has what one batch changes, until the commit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from contracts.kernel.records import Outcome, ParkedCommand, Remembered
from services.kernel.log.rule import FIRST_EPOCH
from services.kernel.model.decider import State, forget_nothing
from services.kernel.record.codec import MessageGroup
from services.kernel.record.envelope import AuthContext, Headers, Metadata
from services.kernel.worker.retry_window import ClosedSteps, RetryWindow, Window

# In place of an expected version: the entity must exist; nothing matches (a weak entity tag never does).
ANY_VERSION, NO_VERSION = -1, -2


class Entity(NamedTuple, Generic[State]):
    """An entity as of its last committed event; version 0: it does not exist. `recorded_at` in micros UTC."""

    state: State
    version: int
    recorded_at: int


def unexpected(expected: int | None, version: int) -> str:
    """Why an entity at `version` is not what If-Match demanded; empty where it is."""
    match expected:
        case None:
            return ""
        case _ if expected == ANY_VERSION:
            return "" if version else "it does not exist"
        case _ if expected == NO_VERSION:
            return f"a weak entity tag matches nothing, it is at version {version}"
        case _:
            return "" if expected == version else f"expected version {expected}, it is {version}"


class LoadedEntity(NamedTuple, Generic[State]):
    """What a snapshot holds; `read_to` and `unread` as in `Snapshot`."""

    entity: Entity[State]
    outcomes: Iterable[Remembered]
    read_to: int = 0
    unread: int = 0


@dataclass(slots=True)
class ReadBack:
    """One partition. `position` is the next offset of its events, `epoch` the one that is open there.

    `stopped` are the keys whose stream forked, or has an event that this code cannot read: nothing is decided
    on them. While it is `restoring`, `skipped_to` is known of keys whose snapshot was taken further on.
    """

    position: int = 0
    epoch: int = FIRST_EPOCH
    restoring: bool = False
    stopped: set[str] = field(default_factory=set)
    skipped_to: dict[str, int] = field(default_factory=dict)
    _unread: dict[str, int] = field(default_factory=dict)
    _ahead_in_snapshot: set[str] = field(default_factory=set)

    def unread(self, key: str) -> int:
        """How many of the entity's last events were not read yet."""
        return self._unread.get(key, 0)

    def published(self, key: str, events: int) -> None:
        """The entity goes ahead of the log."""
        self._unread[key] = self._unread.get(key, 0) + events

    def was_read(self, key: str) -> None:
        """One of the entity's unread events came."""
        if self._unread[key] == 1:
            del self._unread[key]
        else:
            self._unread[key] -= 1

    def restored(self, key: str, read_to: int, unread: int) -> None:
        """A snapshot of the entity was loaded: its events before `read_to` were read when it was taken.

        One that is loaded later has nothing unread: the restore read all that is behind the watermark.
        """
        if self.restoring:
            self.skipped_to[key] = read_to
            if unread:
                self._unread[key] = unread
                self._ahead_in_snapshot.add(key)

    def forget(self, key: str) -> None:
        """The entity is folded anew from its first event."""
        self.skipped_to.pop(key, None)
        self._unread.pop(key, None)
        self.stopped.discard(key)

    def end_restoring(self) -> str | None:
        """All that is committed was read. A key whose snapshot is ahead of the log nevertheless, if any."""
        self.restoring = False
        self.skipped_to.clear()
        return next((key for key in self._unread if key not in self.stopped), None)

    def snapshot_taken(self, key: str) -> tuple[int, int]:
        """What a snapshot must contain: see `Snapshot.read_to` and `Snapshot.unread`."""
        if unread := self.unread(key):
            self._ahead_in_snapshot.add(key)
        return self.position, unread

    def snapshots_ahead(self) -> set[str]:
        """Whose last snapshot was ahead of the log: a later watermark needs a new one."""
        ahead, self._ahead_in_snapshot = self._ahead_in_snapshot, set()
        return ahead

    def is_ahead(self, key: str) -> bool:
        """Whether the entity's last snapshot was ahead of the log."""
        return key in self._ahead_in_snapshot


class FromTopic(bytes):
    """A snapshot as a restore found it: its outcomes are not listed in the retry window before it is loaded."""

    __slots__ = ()


class DirtySet:
    """The entities that changed since their last snapshot, and the written snapshots of those that did not."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._written: dict[str, bytes] = {}
        self._evictable: dict[str, bytes] = {}

    def add(self, key: str) -> None:
        """The entity changed, or its snapshot was not written after all."""
        self._keys.add(key)
        self._written.pop(key, None)
        self._evictable.pop(key, None)

    def take(self) -> set[str]:
        """The keys to write. An entity that was written before and has not changed since may be evicted."""
        self._evictable.update(self._written)
        keys, self._keys, self._written = self._keys, set(), {}
        return keys

    def written(self, key: str, snapshot: bytes) -> None:
        """A snapshot of the entity, recorded outcomes included, is committed."""
        if key not in self._keys:
            self._written[key] = snapshot

    def evictable(self, most: int) -> Iterator[tuple[str, bytes]]:
        """Remove up to `most` entities that no longer change, with their snapshots."""
        for _ in range(min(most, len(self._evictable))):
            yield self._evictable.popitem()


class Partition(Generic[State]):
    """The entity cache of one partition; `outcomes`, `steps` and `dirty` are its collaborators.

    The thread that writes snapshots uses `changed` and `dirty`, never while the owner changes anything.
    """

    def __init__(
        self,
        initial: State,
        forget: Callable[[State, int], State],
        load: Callable[[bytes], LoadedEntity[State]],
        window: Window,
    ) -> None:
        self._absent = Entity(initial, 0, 0)
        self._forget, self._forgets = forget, forget is not forget_nothing
        self._load = load
        self._entities: dict[str, Entity[State] | bytes] = {}
        self.outcomes, self.steps, self.dirty = RetryWindow(window), ClosedSteps(window), DirtySet()
        self.recorded_at = 0
        self.read = ReadBack()

    def __len__(self) -> int:
        return len(self._entities)

    def get(self, key: str) -> Entity[State]:
        """The entity, loaded if it was evicted; one that does not exist has version 0."""
        cached = self._entities.get(key)
        if cached is None:
            return self._absent
        if not isinstance(cached, bytes):
            return cached
        entity, outcomes, read_to, unread = self._load(cached)
        restored = isinstance(cached, FromTopic)
        for recorded in outcomes:
            if recorded.recorded_at >= self.outcomes.horizon:
                self.outcomes.add(key, recorded, listed=not restored)
        if restored:
            self.read.restored(key, read_to, unread)
        if entity.version:
            self._entities[key] = entity
            return entity
        del self._entities[key]
        return self._absent

    def put(self, key: str, entity: Entity[State]) -> None:
        """Keep a committed change."""
        if self._forgets and (closed := self.steps.changed(key, entity.version)) is not None:
            entity = entity._replace(state=self._forget(entity.state, closed))
        self._entities[key] = entity
        self.dirty.add(key)
        if entity.recorded_at > self.recorded_at:
            self.recorded_at = entity.recorded_at

    def publish(self, key: str, entity: Entity[State]) -> None:
        """Publish what the owner has committed and not read back from the log yet."""
        self.read.published(key, entity.version - self.get(key).version)
        self.put(key, entity)

    def record(self, key: str, outcome: Remembered) -> None:
        """Publish the outcome of a committed command."""
        self.outcomes.add(key, outcome)
        self.dirty.add(key)

    def restore(self, key: str, snapshot: bytes | None) -> None:
        """Keep a snapshot as it stands in the topic; None removes what an earlier one brought."""
        if snapshot is None:
            self._entities.pop(key, None)
        else:
            self._entities[key] = FromTopic(snapshot)

    def stop(self, key: str) -> None:
        """Decide nothing on this entity any more."""
        self.read.stopped.add(key)
        self.dirty.add(key)

    def begin_anew(self, key: str) -> None:
        """Forget the entity, to fold it from its first event; keep only outcomes that produced no event."""
        self.get(key)
        self._entities.pop(key, None)
        self.outcomes.drop_those_of_events(key)
        self.read.forget(key)

    def changed(self) -> set[str]:
        """The keys whose snapshots are to be written now."""
        return self.dirty.take() | self.read.snapshots_ahead()

    def evicted(self, key: str) -> bytes | None:
        """The snapshot to which the entity is reduced, if it is."""
        cached = self._entities.get(key)
        return cached if isinstance(cached, bytes) else None

    def evict(self, key: str, snapshot: bytes) -> None:
        """Keep only the entity's snapshot, recorded outcomes included, whether it is written or not."""
        if not isinstance(self._entities.get(key), FromTopic):
            self._entities[key] = snapshot
            self.outcomes.evict(key)

    def evict_unchanged(self, most: int) -> int:
        """Evict up to `most` entities that no longer change; how many it were."""
        count = 0
        for key, snapshot in self.dirty.evictable(most):
            self.evict(key, snapshot)
            count += 1
        return count

    def expire(self, now: int) -> None:
        """Forget what has left the retry window: recorded outcomes, and closed steps kept for late repeats.

        Where nothing but outcomes was ever known of a key, its snapshot goes with the last of them.
        """
        for key in self.outcomes.expire(now):
            if key not in self._entities:
                self.dirty.add(key)
        self.steps.expire(now)


class StagedEvent(NamedTuple):
    partition: int
    key: str
    value: bytes
    metadata: Metadata


@dataclass
class Staged(Generic[State]):
    """The effects of one batch.

    `sent`: how many commands `outgoing` contains.
    `replies`: by topic, partition or key, and who caused the commands.
    `correlations`: for the key of each reply, the correlation id and the traceparent of its first command.
    `written`: partition, key and headers of each event, as it will be read back.
    """

    entities: dict[tuple[int, str], Entity[State]] = field(default_factory=dict)
    outcomes: dict[tuple[int, str, str], Remembered] = field(default_factory=dict)
    events: list[StagedEvent] = field(default_factory=list)
    written: list[tuple[int, str, Headers]] = field(default_factory=list)
    outgoing: list[MessageGroup] = field(default_factory=list)
    sent: int = 0
    replies: dict[tuple[str, int | None, str, AuthContext], list[Outcome]] = field(default_factory=dict)
    unrecorded: list[tuple[int, str, Remembered]] = field(default_factory=list)
    parked: list[tuple[str, ParkedCommand]] = field(default_factory=list)
    correlations: dict[str, tuple[str, str]] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def send(self, groups: Sequence[MessageGroup]) -> None:
        self.outgoing.extend(groups)
        self.sent += sum([len(group.messages) for group in groups])

    @property
    def effects(self) -> int:
        """How many events and outgoing commands the batch has."""
        return len(self.events) + self.sent

    @property
    def awaited(self) -> bool:
        """Whether a client of an API waits for one of its outcomes: those go to a partition, replies to a key."""
        return any(partition is not None for _, partition, *_ in self.replies)
