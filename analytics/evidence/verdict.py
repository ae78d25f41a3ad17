"""The result of an audit, as values and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from analytics.errors import AnalyticsError
from analytics.evidence.comparison import Comparison, Difference
from analytics.log_rule import NO_FAULT, Exceptions
from analytics.offsets import Offsets

NAMED_RECORDS = 20
DECIDED = "decided"
IDENTICAL, STOPPED, DIFFERENT = "identical", "stopped", "different"


class BadExpectation(AnalyticsError):
    """The expectation file cannot be read, or is not of its form."""


@dataclass(frozen=True)
class Aside:
    """The records that do not count. `foreign`: foreign records; `decided`: those that an operator decided.

    `named` are the first of them, (topic/partition/offset, reason). `stopped` are the keys that wait for an
    operator: (topic/partition/offset of the record, key, `forked` or `unreadable`).
    """

    foreign: int
    decided: int
    named: Sequence[tuple[str, str]]
    stopped: Sequence[tuple[str, str, str]]


def aside(exceptions: Exceptions) -> Aside:
    """Returns the records that do not count, in the log's order."""
    foreign = [(f"{topic}/{n}/{at}", why) for topic, n, at, why in exceptions.records if why not in NO_FAULT]
    stopped = [(f"{topic}/{n}/{at}", key, why) for topic, n, key, at, why in exceptions.stopped]
    decided = sum(why == DECIDED for _, why in foreign)
    return Aside(len(foreign), decided, foreign[:NAMED_RECORDS], stopped)


@dataclass(frozen=True)
class Verdict:
    """`ends`: the exclusive end offsets of what was read; `revenue`: (day, net micros) for the chart.

    `parked` is how many events a read model could not apply, without those of keys that stopped in the log;
    `differences` names at most the first hundred keys of each kind.
    """

    ends: Offsets
    events: int
    comparisons: Sequence[Comparison]
    differences: Sequence[Difference]
    aside: Aside
    parked: int
    revenue: Sequence[tuple[str, int]]
    seconds: float

    @property
    def word(self) -> str:
        """`stopped`: all accounts agree, but keys wait for a decision, so not every event counts. Foreign records
        change nothing."""
        if any(comparison.differing for comparison in self.comparisons) or self.parked:
            return DIFFERENT
        return STOPPED if self.aside.stopped else IDENTICAL

    @property
    def identical(self) -> bool:
        """Tells whether all accounts agree and no key waits for a decision."""
        return self.word == IDENTICAL

    def to_json(self) -> str:
        content: dict[str, Any] = {"verdict": self.word, "identical": self.identical, **asdict(self)}
        return msgspec.json.format(msgspec.json.encode(content, enc_hook=str), indent=2).decode()
