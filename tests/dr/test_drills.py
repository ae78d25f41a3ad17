"""The small campaign: each drill once or twice, on two whole sites, under load."""

import pytest

from infra.lab.drills.damage import Kind
from infra.lab.drills.failback import FAILBACK
from infra.lab.drills.mirror import mirror_crash
from infra.lab.drills.pair import Pair
from infra.lab.drills.planned import PLANNED
from infra.lab.drills.unplanned import unplanned
from tests.dr.conftest import Hold

pytestmark = pytest.mark.timeout(900)


def test_a_mirror_that_is_killed_twice_doubles_nothing(pair: Pair, hold: Hold) -> None:
    report = hold(mirror_crash(), pair)
    assert report.figures["records in aborted transactions"] > 0


def test_a_site_dies_and_every_write_is_accounted_for(pair: Pair, hold: Hold) -> None:
    hold(unplanned(Kind.DEAD), pair)


def test_going_back_loses_and_doubles_nothing(pair_after_loss: Pair, hold: Hold) -> None:
    hold(FAILBACK, pair_after_loss)


def test_a_planned_switchover_loses_nothing(pair: Pair, hold: Hold) -> None:
    hold(PLANNED, pair)


def test_a_site_that_was_only_frozen_stands_down(pair: Pair, hold: Hold) -> None:
    hold(unplanned(Kind.FROZEN), pair, 1)
