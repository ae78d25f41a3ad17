"""The entities of one partition in memory, changed only after a commit. An entity is cached as its state, or
evicted: then only its encoded snapshot is kept, which takes less memory and gives a collector nothing to walk
through. It is loaded on the next access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from contracts.kernel.records import Remembered
from services.kernel.model.decider import forget_nothing
from services.kernel.worker.entity import Entity, LoadedEntity
from services.kernel.worker.read_back import ReadBack
from services.kernel.worker.retry_window import ClosedSteps, RetryWindow, Window

State = TypeVar("State")


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

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entities))

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
