"""Contenders measured in short interleaved windows, so that a noisy machine disturbs all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.statistics import Spread, ratios, spread

Say = Callable[[str], None]


class Unmeasurable(RuntimeError):
    """A figure cannot be measured; the text gives the reason."""


@dataclass(frozen=True)
class Effort:
    """`windows` of `seconds` each (at most 10); a `quick` run proves nothing. `traced`: also where the time goes."""

    windows: int = 5
    seconds: float = 5.0
    quick: bool = False
    traced: bool = False


FULL = Effort(traced=True)
QUICK = Effort(windows=3, seconds=3.0, quick=True, traced=True)


@dataclass(frozen=True)
class Window:
    """One measurement: the figure and its details (times in ms, `cpu …` in cores)."""

    figure: float
    seen: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A program to measure: `measure` takes one window."""

    name: str
    measure: Callable[[], Window]


@dataclass(frozen=True)
class Goal:
    """A bound and the measured value."""

    text: str
    measured: float
    bound: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


@dataclass
class Measured:
    """One row of the table: the first contender is ours, the others are what it is compared with.

    `name` is what `floors.toml` calls it, where `what` is not the same in every run.
    `parts`: where the time of ours goes, in ms; the last one is their sum.
    """

    what: str
    unit: str
    windows: dict[str, list[Window]]
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lower_is_better: bool = False
    name: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        return next(iter(self.windows))

    def figures(self, name: str = "") -> list[float]:
        return [window.figure for window in self.windows[name or self.subject]]

    def spread(self, name: str = "") -> Spread:
        return spread(self.figures(name))

    def seen(self, detail: str, name: str = "") -> Spread:
        """The spread of a detail over the windows of a contender (default: ours); 0 where it is absent."""
        return spread([window.seen.get(detail, 0.0) for window in self.windows[name or self.subject]])

    def ratio(self, peer: str) -> Spread:
        """The ratio of our figures to the peer's, by pairs of windows."""
        return spread(ratios(self.figures(), self.figures(peer)))

    def reach(self, text: str, measured: float, bound: float, *, at_least: bool = True) -> None:
        self.goals.append(Goal(text, measured, bound, at_least))


def interleave(
    contenders: Sequence[Contender],
    windows: int,
    say: Say,
    *,
    warm: bool = True,
    before: Callable[[], None] = lambda: None,
) -> dict[str, list[Window]]:
    """`windows` rounds, each contender once a round and each first in its turn; `before` prepares a round.

    With `warm` a first round is not counted: a cold JVM or an empty cache misleads.
    """
    taken: dict[str, list[Window]] = {contender.name: [] for contender in contenders}
    for number in range(-1 if warm else 0, windows):
        before()
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            window = contender.measure()
            if number >= 0:
                taken[contender.name].append(window)
                say(f"window {number + 1} of {windows}, {contender.name}: {window.figure:,.6g}")
    return taken
