"""What a partition keeps for one retry window and then forgets: recorded outcomes, and closed steps."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from contracts.kernel.records import Outcome, Remembered

MICROS_PER_HOUR = 3_600_000_000
# Outcomes are forgotten in portions: what is kept beside each is then the name of its entity alone.
PORTIONS = 1000
# Closed steps are forgotten in this many portions, at most one window and one portion late.
STEPS_PER_WINDOW = 24


class Window(NamedTuple):
    """Outcomes older than `hours`, or beyond a partition's newest `most`, are forgotten."""

    hours: float
    most: int

    def begins(self, now: int) -> int:
        return now - int(self.hours * MICROS_PER_HOUR)


@dataclass(slots=True)
class Portion:
    """Entities whose outcomes were recorded one after the other, the last of them at `until`."""

    until: int
    keys: list[str]


class RetryWindow:
    """The recorded outcomes of cached entities, by command. Every outcome is listed once in a portion, also
    when its entity is evicted: outcomes recorded before the `horizon` are left out when it is loaded."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._outcomes: dict[str, dict[str, Remembered]] = {}
        self._portions: deque[Portion] = deque()
        self._count = 0
        self.horizon = 0

    def add(self, key: str, recorded: Remembered, *, listed: bool = False) -> None:
        """Keep an outcome, and list it unless it is listed already."""
        outcomes, command_id = self._outcomes.setdefault(key, {}), recorded.outcome.command_id
        listed = listed or command_id in outcomes
        outcomes[command_id] = recorded
        if listed:
            return
        if not self._portions or len(self._portions[-1].keys) >= self._window.most // PORTIONS:
            self._portions.append(Portion(0, []))
        newest = self._portions[-1]
        newest.until = max(newest.until, recorded.recorded_at)
        newest.keys.append(key)
        self._count += 1

    def outcome(self, key: str, command_id: str) -> Outcome | None:
        """The recorded outcome of this command. The entity must be loaded."""
        outcomes = self._outcomes.get(key)
        recorded = outcomes.get(command_id) if outcomes else None
        return recorded.outcome if recorded else None

    def of(self, key: str) -> list[Remembered]:
        """What a snapshot of the entity must contain."""
        return list(self._outcomes.get(key, {}).values())

    def evict(self, key: str) -> None:
        """The entity's snapshot holds its outcomes from now on. They stay listed."""
        self._outcomes.pop(key, None)

    def drop_those_of_events(self, key: str) -> None:
        """Keep only outcomes that produced no event: the others are folded anew."""
        outcomes = self._outcomes.pop(key, {})
        if kept := {name: recorded for name, recorded in outcomes.items() if not recorded.outcome.event_ids}:
            self._outcomes[key] = kept

    def expire(self, now: int) -> Iterator[str]:
        """Forget what has left the window. Yields entities whose last outcome that was."""
        horizon = self._window.begins(now)
        self.horizon = max(self.horizon, horizon)
        while self._portions and (self._portions[0].until < horizon or self._count > self._window.most):
            oldest = self._portions.popleft()
            self.horizon = max(self.horizon, oldest.until + 1)
            self._count -= len(oldest.keys)
            for key in oldest.keys:
                if self._forget_first(key, oldest.until):
                    yield key

    def _forget_first(self, key: str, until: int) -> bool:
        """Whether that was the last one. Nothing is here of an entity that is evicted."""
        if not (outcomes := self._outcomes.get(key)):
            return False
        first = next(iter(outcomes))
        if outcomes[first].recorded_at <= until:
            del outcomes[first]
        if not outcomes:
            del self._outcomes[key]
        return not outcomes


class ClosedSteps:
    """Up to which version each entity's closed steps have left the window.

    They are forgotten when the entity changes next: most entities are evicted until then.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._changed: dict[str, int] = {}
        self._since = 0
        self._earlier: deque[tuple[int, dict[str, int]]] = deque()
        self._due: dict[str, int] = {}

    def changed(self, key: str, version: int) -> int | None:
        """The entity changed. Returns the version up to which its closed steps are to be forgotten, if any."""
        self._changed[key] = version
        return self._due.pop(key, None)

    def expire(self, now: int) -> None:
        """Steps that were closed before the window are due."""
        if now - self._since > int(self._window.hours * MICROS_PER_HOUR) // STEPS_PER_WINDOW:
            self._earlier.append((now, self._changed))
            self._changed, self._since = {}, now
        while self._earlier and self._earlier[0][0] < self._window.begins(now):
            self._due.update(self._earlier.popleft()[1])

    def keep(self, now: int) -> None:
        """Every closed step that is still known is kept for a whole window from now on."""
        kept = self._due
        for _, versions in self._earlier:
            kept.update(versions)
        kept.update(self._changed)
        self._changed, self._since = kept, now
        self._due = {}
        self._earlier.clear()
