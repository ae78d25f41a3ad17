"""The small campaign: a loss, the way back and a switchover, on two whole sites, under load. `full` has all drills."""

import pytest

from infra.lab.drills.drill import DrillFailed
from infra.lab.drills.pair import Kind, Pair
from infra.lab.drills.switchover import FAILBACK, PLANNED
from infra.lab.drills.takeover import unplanned
from tests.dr.conftest import RunDrill

pytestmark = pytest.mark.timeout(900)


def test_a_site_dies_and_every_write_is_accounted_for(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(unplanned(Kind.DEAD), pair)


def test_a_failover_is_not_done_twice(pair_after_loss: Pair) -> None:
    """Nor is a site promoted that lacks what the other wrote since."""
    refuses(pair_after_loss, "replaced .* in epoch", "failover", "--unplanned", "--confirm", "home")
    refuses(pair_after_loss, "was replaced by .* site rebuild", "failover", "--planned")


def test_going_back_loses_and_doubles_nothing(pair_after_loss: Pair, run_drill: RunDrill) -> None:
    run_drill(FAILBACK, pair_after_loss)


def test_a_planned_switchover_loses_nothing(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(PLANNED, pair)


def test_a_healthy_shop_keeps_its_second_copy(pair: Pair) -> None:
    refuses(pair, "no site was lost", "failback", "--confirm", "home")
    _, passive, _ = pair.roles()
    refuses(pair, "is a healthy copy", "site", "rebuild", passive.name, "--confirm", passive.name)
    refuses(pair, "nothing was changed: add", "site", "rebuild", passive.name, "--force")


def refuses(pair: Pair, reason: str, *arguments: str) -> None:
    with pytest.raises(DrillFailed, match=rf"(?s)ended with 1:.*{reason}"):
        pair.run(*arguments)
