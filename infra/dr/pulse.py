"""Whether a mirror that runs also copies.

Its only task may end by a fatal error, and the process lives on and does nothing: seen when the transaction
coordinator refused a commit (`InvalidTxnState`) on a busy broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STOPPED_SECONDS = 10.0


class MirrorPulse:
    """Canaries are beats: one comes each second while an active site is in reach. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat_at = 0.0
        self._expected_since: float | None = None

    def beat(self) -> None:
        """A canary of the other site has come."""
        self._beat_at = self._clock()

    def expect(self, expected: bool) -> None:
        """Whether canaries are on their way: the other site answers and writes, and this one is passive."""
        if not expected:
            self._expected_since = None
        elif self._expected_since is None:
            self._expected_since = self._clock()

    def stopped_for(self) -> float | None:
        """Seconds in which some should have come and none did, if too many; None while all is well."""
        if self._expected_since is None:
            return None
        silent = self._clock() - max(self._beat_at, self._expected_since)
        return silent if silent > STOPPED_SECONDS else None
