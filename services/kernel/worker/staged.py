"""What one batch of commands makes of the world, before anybody can see it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from contracts.kernel.records import Outcome, ParkedCommand, Remembered
from services.kernel.record.envelope import Headers, Metadata
from services.kernel.worker.entity import Entity

State = TypeVar("State")


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
