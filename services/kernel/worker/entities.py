"""What one partition's owner holds in memory: entities, and the answers of the retry window. Changed only
after a commit. What rests is held as its snapshot: less memory, and nothing for a collector to walk through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from contracts.kernel.records import Outcome, Remembered
from services.kernel.model.decider import forget_nothing
from services.kernel.worker.entity import MICROS_PER_HOUR, Entity, Thawed, Window
from services.kernel.worker.read_back import ReadBack

State = TypeVar("State")

# Closed steps are forgotten in this many portions, at most one window and one portion late.
STEPS_PER_WINDOW = 24
# Answers are forgotten in portions too: what is kept for each is then the name of its entity alone.
PORTIONS = 1000


class Unnamed(bytes):
    """A snapshot as a restore found it: its answers are not among the ages before it is thawed."""

    __slots__ = ()


@dataclass(slots=True)
class Portion:
    """Whose answers came one after the other, the last of them recorded at `until`."""

    until: int
    keys: list[str]


class Partition(Generic[State]):
    """The entities of one partition. A snapshot stays raw until its entity is touched (`thaw` decodes it).

    Another thread that writes snapshots calls `changed`, `written` and `unwritten`, and never while the owner
    changes anything.
    """

    def __init__(
        self,
        initial: State,
        forget: Callable[[State, int], State],
        thaw: Callable[[bytes], Thawed[State]],
        window: Window,
    ) -> None:
        self._absent = Entity(initial, 0, 0)
        self._forget, self._forgets = forget, forget is not forget_nothing
        self._thaw = thaw
        self._window = window
        self._entities: dict[str, Entity[State] | bytes] = {}
        self._answers: dict[str, dict[str, Remembered]] = {}
        self._ages: deque[Portion] = deque()
        self._remembered = 0
        self._horizon = 0
        self._touched: dict[str, int] = {}
        self._touched_since = 0
        self._touched_before: deque[tuple[int, dict[str, int]]] = deque()
        self._to_forget: dict[str, int] = {}
        self._dirty: set[str] = set()
        self._written: dict[str, bytes] = {}
        self._resting: dict[str, bytes] = {}
        self.recorded_at = 0
        self.read = ReadBack()

    def __len__(self) -> int:
        return len(self._entities)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entities))

    def freeze(self, key: str, snapshot: bytes | None) -> None:
        """Take a snapshot as it stands in the topic; None removes what an earlier one brought."""
        if snapshot is None:
            self._entities.pop(key, None)
        else:
            self._entities[key] = Unnamed(snapshot)

    def get(self, key: str) -> Entity[State]:
        """The entity; one that does not exist has version 0."""
        held = self._entities.get(key)
        if held is None:
            return self._absent
        if not isinstance(held, bytes):
            return held
        entity, answers, read_to, unread = self._thaw(held)
        restored = isinstance(held, Unnamed)
        for answer in answers:
            if answer.recorded_at >= self._horizon:
                self._keep(key, answer, named=not restored)
        if restored:
            self.read.restored(key, read_to, unread)
        if entity.version:
            self._entities[key] = entity
            return entity
        del self._entities[key]
        return self._absent

    def put(self, key: str, entity: Entity[State]) -> None:
        """Hold a committed change."""
        if (closed := self._to_forget.pop(key, None)) is not None:
            entity = entity._replace(state=self._forget(entity.state, closed))
        self._entities[key] = entity
        self._touch(key)
        if self._forgets:
            self._touched[key] = entity.version
        if entity.recorded_at > self.recorded_at:
            self.recorded_at = entity.recorded_at

    def publish(self, key: str, entity: Entity[State]) -> None:
        """Publish what the owner has committed and not read back from the log yet."""
        self.read.published(key, entity.version - self.get(key).version)
        self.put(key, entity)

    def stop(self, key: str) -> None:
        """Decide nothing on this entity any more."""
        self.read.stopped.add(key)
        self._touch(key)

    def begin_anew(self, key: str) -> None:
        """Forget the entity, to fold it from its first event; keep only answers that no event says."""
        self.get(key)
        self._entities.pop(key, None)
        answers = self._answers.pop(key, {})
        if kept := {name: answer for name, answer in answers.items() if not answer.outcome.event_ids}:
            self._answers[key] = kept
        self.read.forget(key)

    def remember(self, key: str, answer: Remembered) -> None:
        """Publish a committed answer."""
        self._keep(key, answer, named=False)
        self._touch(key)

    def answered(self, key: str, command_id: str) -> Outcome | None:
        """The answer that this command already had, within the retry window. Call `get` first: it thaws."""
        answers = self._answers.get(key)
        remembered = answers.get(command_id) if answers else None
        return remembered.outcome if remembered else None

    def answers(self, key: str) -> list[Remembered]:
        """What a snapshot of the entity must hold of the window."""
        return list(self._answers.get(key, {}).values())

    def changed(self) -> set[str]:
        """Whom to write: what changed since the last call. What was written then, and did not, may rest."""
        self._resting.update(self._written)
        changed, self._dirty, self._written = self._dirty, set(), {}
        return changed | self.read.snapshots_ahead()

    def written(self, key: str, snapshot: bytes) -> None:
        """A snapshot of the entity, answers included, is committed; nothing more is expected of it."""
        if key not in self._dirty:
            self._written[key] = snapshot

    def unwritten(self, key: str) -> None:
        """What `changed` named was not written after all."""
        self._touch(key)

    def resting(self, key: str) -> bytes | None:
        """The snapshot as which it is held, if it is."""
        held = self._entities.get(key)
        return held if isinstance(held, bytes) else None

    def hold(self, key: str, snapshot: bytes) -> None:
        """Hold it as its snapshot, answers included, until somebody asks for it; written or not.

        Its answers stay among the ages.
        """
        if not isinstance(self._entities.get(key), Unnamed):
            self._entities[key] = snapshot
            self._answers.pop(key, None)

    def rest(self, most: int) -> int:
        """Hold up to `most` of those that no longer change as their snapshots; how many it were."""
        count = min(most, len(self._resting))
        for _ in range(count):
            self.hold(*self._resting.popitem())
        return count

    def expire(self, now: int) -> None:
        """Forget what has left the retry window: answers, and closed steps kept for late repeats.

        Steps are forgotten when their entity changes next: most of them rest.
        """
        horizon = self._window.begins(now)
        self._horizon = max(self._horizon, horizon)
        while self._ages and (self._ages[0].until < horizon or self._remembered > self._window.most):
            oldest = self._ages.popleft()
            self._horizon = max(self._horizon, oldest.until + 1)
            self._remembered -= len(oldest.keys)
            for key in oldest.keys:
                self._forget_first(key, oldest.until)
        if now - self._touched_since > int(self._window.hours * MICROS_PER_HOUR) // STEPS_PER_WINDOW:
            self._touched_before.append((now, self._touched))
            self._touched, self._touched_since = {}, now
        while self._touched_before and self._touched_before[0][0] < horizon:
            self._to_forget.update(self._touched_before.popleft()[1])

    def keep_steps(self, now: int) -> None:
        """Every closed step that is still known is kept for a whole window from now on."""
        touched = self._to_forget
        for _, versions in self._touched_before:
            touched.update(versions)
        touched.update(self._touched)
        self._touched, self._touched_since = touched, now
        self._to_forget = {}
        self._touched_before.clear()

    def _touch(self, key: str) -> None:
        self._dirty.add(key)
        self._written.pop(key, None)
        self._resting.pop(key, None)

    def _keep(self, key: str, answer: Remembered, *, named: bool) -> None:
        """Hold an answer, and name its entity among the ages once."""
        answers, command_id = self._answers.setdefault(key, {}), answer.outcome.command_id
        named = named or command_id in answers
        answers[command_id] = answer
        if named:
            return
        if not self._ages or len(self._ages[-1].keys) >= self._window.most // PORTIONS:
            self._ages.append(Portion(0, []))
        newest = self._ages[-1]
        newest.until = max(newest.until, answer.recorded_at)
        newest.keys.append(key)
        self._remembered += 1

    def _forget_first(self, key: str, until: int) -> None:
        """Of an entity that rests nothing is in hand: what has left the window is left out when it wakes up.

        Where nothing but answers was ever known of a name, the snapshot goes with the last of them.
        """
        if not (answers := self._answers.get(key)):
            return
        first = next(iter(answers))
        if answers[first].recorded_at <= until:
            del answers[first]
        if not answers:
            del self._answers[key]
            if key not in self._entities:
                self._dirty.add(key)
