"""What clients were told, a line of JSON each, written as it comes: the yardstick of every drill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

from infra.lab.checker import Acknowledged

ACCEPTED = "accepted"


@dataclass(frozen=True)
class Acknowledgement:
    """One answer. `site` gave it; `answer` is `accepted` or a refusal's code; `event_id` is empty where
    nothing changed; `epoch` is the token's (0 for refusals); `sent` (the first attempt) and `at` are seconds
    since 1970."""

    command_id: str
    kind: str
    entity: str
    key: str
    site: str
    answer: str
    version: int
    event_id: str
    token: str
    epoch: int
    replayed: bool
    sent: float
    at: float

    @property
    def accepted(self) -> bool:
        return self.answer == ACCEPTED

    def for_checker(self) -> Acknowledged:
        kind, code = (ACCEPTED, "") if self.accepted else ("refused", self.answer)
        ids = (self.event_id,) if self.event_id else ()
        return Acknowledged(self.command_id, self.entity, kind, self.version, ids, code)


class AcknowledgementFile:
    """A new file; each line is with the operating system before the next begins."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)

    def append(self, acknowledgement: Acknowledgement) -> None:
        self._file.write(msgspec.json.encode(acknowledgement) + b"\n")

    def close(self) -> None:
        self._file.close()


def read_acknowledgements(path: Path) -> list[Acknowledgement]:
    """Every line, in order of arrival."""
    return [msgspec.json.decode(line, type=Acknowledgement) for line in path.read_bytes().splitlines()]


def longest_gap(
    times: Iterable[float], start: float = 0.0, end: float = float("inf")
) -> tuple[float, float, float]:
    """The longest stretch without one of `times` that touches `start` to `end`: (seconds, from, to)."""
    ordered = sorted(times)
    gaps = [
        (later - earlier, earlier, later)
        for earlier, later in pairwise(ordered)
        if later >= start and earlier <= end
    ]
    return max(gaps, default=(0.0, start, start))
