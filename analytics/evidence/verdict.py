"""What an audit found, as values and as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analytics.evidence.comparing import Comparison, Difference
from analytics.offsets import Offsets


class BadExpectation(Exception):
    """The expectation file cannot be read, or is not of its form."""


@dataclass(frozen=True)
class Verdict:
    """`ends`: the exclusive end offsets of what was read; `revenue`: (day, net micros) for the chart.

    `set_aside` is what was in the log and could not be read, `parked` what the read models could not apply;
    `differences` names at most the first hundred keys of each kind.
    """

    ends: Offsets
    events: int
    comparisons: Sequence[Comparison]
    differences: Sequence[Difference]
    set_aside: Sequence[Mapping[str, Any]]
    parked: int
    revenue: Sequence[tuple[str, int]]
    seconds: float

    @property
    def identical(self) -> bool:
        """Whether every account says the same, of everything that is in the log."""
        differing = any(comparison.differing for comparison in self.comparisons)
        return not (differing or self.set_aside or self.parked)

    def to_json(self) -> str:
        return json.dumps({"identical": self.identical, **asdict(self)}, indent=2, default=str)
