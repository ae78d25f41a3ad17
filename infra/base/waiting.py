"""Waiting for a condition outside this process: the one place that polls and sleeps."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from infra.base.errors import DaybookError

Seen = TypeVar("Seen")

POLL_SECONDS = 0.05


class TooLate(DaybookError, TimeoutError):
    """The condition `what` did not hold within `seconds`; `last` is the last result or exception."""

    def __init__(self, what: str, seconds: float, last: Any) -> None:
        seen = "" if last is None or last is False else f" (last seen: {last!r})"
        super().__init__(f"not within {seconds:.0f} s: {what}{seen}")
        self.what, self.seconds, self.last = what, seconds, last


def wait_until(
    look: Callable[[], Seen],
    what: str | Callable[[], str],
    seconds: float,
    *,
    enough: Callable[[Seen], object] = bool,
    later: tuple[type[Exception], ...] = (),
    every: float = POLL_SECONDS,
    error: Callable[[TooLate], Exception] = lambda late: late,
) -> Seen:
    """The first result of `look` that is `enough`.

    It calls `look` at least once, and again after each pause of `every` seconds. Exceptions of the types `later`
    mean "not yet"; any other ends the wait. `what` describes the condition; a function is called only for the
    error's text. Raises the result of `error` for TooLate after `seconds`, by default TooLate itself.
    """
    deadline = time.monotonic() + seconds
    last: Any
    reason: Exception | None
    while True:
        try:
            last, reason = (seen := look()), None
            if enough(seen):
                return seen
        except later as not_yet:
            last = reason = not_yet
        if time.monotonic() > deadline:
            raise error(TooLate(what if isinstance(what, str) else what(), seconds, last)) from reason
        time.sleep(every)
