"""The loss budget: which writes are refused while the other site lacks others, with a clock that the tests set."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from services.edge.durability import LossBudget
from services.edge.problems import BeyondLossBudget
from services.kernel.record.envelope import uuid7

BUDGET = 5.0


@dataclass
class Site:
    """A site in epoch 1, of which the other one lacks what was acknowledged and did not arrive."""

    now: float = 0.0
    epoch: int = 1
    alone: bool = False
    budget: LossBudget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = LossBudget(BUDGET, lambda: self.now)

    def accepts(self) -> bool:
        try:
            self.budget.require(self.epoch, alone=self.alone)
        except BeyondLossBudget:
            return False
        return True

    def write(self, *events: str) -> None:
        for event in events:
            assert self.accepts()
            self.budget.acknowledged(event)


def test_writes_are_refused_while_one_is_missing_for_longer_than_the_budget() -> None:
    site = Site()
    site.write("a", "b")
    site.now = BUDGET
    site.write("c")
    site.now = BUDGET + 0.1
    assert not site.accepts()
    site.budget.arrived(["b"])
    assert not site.accepts()
    site.budget.arrived(["a", "of another process"])
    assert site.accepts()  # "c" is young
    site.now = 2 * BUDGET + 0.1
    assert not site.accepts()


def test_the_problem_says_how_far_behind_the_other_site_is() -> None:
    site = Site()
    site.write("a")
    site.now = 12.0
    with pytest.raises(BeyondLossBudget, match=r"12 s ago; DAYBOOK_LOSS_BUDGET_SECONDS is 5$"):
        site.budget.require(1, alone=False)


def test_what_an_earlier_epoch_acknowledged_does_not_count() -> None:
    site = Site()
    site.write("lost with the old log")
    site.now, site.epoch = 100.0, 3
    assert site.accepts()


def test_a_site_that_is_alone_writes_until_the_mirror_has_caught_up_again() -> None:
    site = Site()
    site.write("a")
    site.now, site.alone = 100.0, True
    site.write("b")
    site.now, site.alone = 200.0, False  # the other site is being copied, and lacks everything
    site.write("c")
    site.now = 300.0
    site.write("d")
    site.budget.arrived(["c"])  # it is being copied still: "c" is a hundred seconds late
    site.now = 306.0
    site.write("e")
    site.now = 307.0
    site.budget.arrived(["e"])  # caught up
    site.write("f")
    site.now = 313.0
    assert not site.accepts()


def test_the_follower_begins_again_at_the_oldest_missing_event() -> None:
    site = Site()
    assert site.budget.oldest_ms() is None
    first, second = uuid7(), uuid7()
    site.write(first, second)
    assert site.budget.oldest_ms() == int(first.replace("-", "")[:12], 16)
    site.budget.arrived([first])
    assert site.budget.oldest_ms() == int(second.replace("-", "")[:12], 16)
