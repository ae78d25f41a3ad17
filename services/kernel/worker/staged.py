"""One batch of commands: its effects before anybody can see them, and how long it gathers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from contracts.kernel.records import Outcome, ParkedCommand, Remembered
from services.kernel.record.envelope import Headers, Metadata
from services.kernel.worker.entity import Entity

State = TypeVar("State")

WINDOW_PER_COMMAND = 0.0002  # seconds that the window grows with each command of the batch before
# Windows that a batch of conversations alone may last: each transaction that it saves is time for those who
# wait at an API, and for the read models.
PATIENCE = 10


class StagedEvent(NamedTuple):
    partition: int
    key: str
    value: bytes
    metadata: Metadata


class StagedAsk(NamedTuple):
    topic: str
    key: str
    value: bytes
    metadata: Metadata


@dataclass
class Staged(Generic[State]):
    """The effects of one batch.

    `correlations`: for the key of each reply, the correlation id and the traceparent of its first command.
    `written`: partition, key and headers of each event, as it will be read back.
    """

    entities: dict[tuple[int, str], Entity[State]] = field(default_factory=dict)
    answers: dict[tuple[int, str, str], Remembered] = field(default_factory=dict)
    events: list[StagedEvent] = field(default_factory=list)
    written: list[tuple[int, str, Headers]] = field(default_factory=list)
    asks: list[StagedAsk] = field(default_factory=list)
    replies: dict[tuple[str, int | None, str], list[Outcome]] = field(default_factory=dict)
    unrecorded: list[tuple[int, str, Remembered]] = field(default_factory=list)
    parked: list[tuple[str, ParkedCommand]] = field(default_factory=list)
    correlations: dict[str, tuple[str, str]] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        """How many the batch has grown to, but for a few."""
        return len(self.events) + len(self.asks)

    @property
    def awaited(self) -> bool:
        """Whether somebody at an API waits for an outcome of it: a conversation is answered by key."""
        return any(partition is not None for _, partition, _ in self.replies)


@dataclass
class Gathering:
    """A rule without a clock (ADR 14): how long a batch gathers, in seconds; `longest` bounds a window."""

    longest: float
    window: float = 0.0

    def lasts(self, awaited: bool) -> float:
        return self.window if awaited else self.window * PATIENCE

    def took(self, commands: int) -> None:
        """The next window follows the load."""
        self.window = min(self.longest, commands * WINDOW_PER_COMMAND)
