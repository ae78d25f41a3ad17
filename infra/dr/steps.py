"""The steps of a failover as an operator sees them: named, timed, shown while they last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from infra.base.errors import DaybookError

Show = Callable[[str], None]


class NotDone(DaybookError):
    """A failover cannot begin, or a step did not come to its end; the text says why and what to do."""


@dataclass(frozen=True)
class SiteStep:
    """One step that is done; `detail` is what it found."""

    name: str
    seconds: float
    detail: str = ""


@dataclass
class Doing:
    """The step under way; whoever does it may set `detail`."""

    detail: str = ""


@dataclass
class Steps:
    """What was done so far; `show` is told each step when it begins."""

    show: Show = lambda _: None
    done: list[SiteStep] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Doing]:
        self.show(name)
        doing, began = Doing(), time.monotonic()
        yield doing
        self.done.append(SiteStep(name, time.monotonic() - began, doing.detail))
