"""What a load measured: answers by kind of command, refusals by reason, times."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from infra.lab.retail.requests import Call
from infra.lab.retail.sender import ApiResponse


@dataclass(frozen=True, slots=True)
class KindTally:
    """One kind of command; times in seconds, from the first attempt to the answer."""

    kind: str
    commands: int
    acknowledged: int
    refused: int
    replayed: int
    repeated: int
    p50: float
    p99: float


@dataclass(slots=True)
class Tally:
    """Fed with every answer. `seconds` is the load's whole time, `order_seconds` that of the orders' part."""

    refused: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    order_seconds: float = 0.0
    order_lines: int = 0
    _answers: dict[str, list[ApiResponse]] = field(default_factory=dict)

    def add(self, call: Call, answer: ApiResponse) -> None:
        self._answers.setdefault(call.kind, []).append(answer)
        if answer.refused:
            self.refused[answer.refused] += 1
        elif call.kind == "order":
            self.statuses[answer.status] += 1

    def kinds(self) -> Sequence[KindTally]:
        """One row per kind of command, in the order in which they were first sent."""
        return [_kind(kind, answers) for kind, answers in self._answers.items()]

    def total(self) -> KindTally:
        """All commands together."""
        return _kind("all", [answer for answers in self._answers.values() for answer in answers])

    @property
    def lines_per_second(self) -> float:
        """Settled order lines a second: orders placed, settled, shipped and returned meanwhile."""
        return self.order_lines / self.order_seconds if self.order_seconds else 0.0

    @property
    def commands_per_second(self) -> float:
        return self.total().commands / self.seconds if self.seconds else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)] if ordered else 0.0


def _kind(kind: str, answers: Sequence[ApiResponse]) -> KindTally:
    times = [answer.seconds for answer in answers]
    refused = sum(bool(answer.refused) for answer in answers)
    return KindTally(
        kind=kind,
        commands=len(answers),
        acknowledged=len(answers) - refused,
        refused=refused,
        replayed=sum(answer.replayed for answer in answers),
        repeated=sum(answer.repeats for answer in answers),
        p50=quantile(times, 0.50),
        p99=quantile(times, 0.99),
    )
