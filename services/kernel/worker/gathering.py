"""How long a batch gathers: a rule without a clock (ADR 14)."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_PER_COMMAND = 0.0002  # seconds that the window grows with each command of the batch before
# Windows that a batch of conversations alone may last: each transaction that it saves is time for those who
# wait at an API, and for the read models.
PATIENCE = 10


@dataclass
class Gathering:
    """How long a batch gathers, in seconds; `longest` bounds a window."""

    longest: float
    window: float = 0.0

    def lasts(self, awaited: bool) -> float:
        return self.window if awaited else self.window * PATIENCE

    def took(self, commands: int) -> None:
        """The next window follows the load."""
        self.window = min(self.longest, commands * WINDOW_PER_COMMAND)
