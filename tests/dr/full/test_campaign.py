"""The whole campaign: losses of every kind, switchovers, ways back, kills of the mirror, on shared sites."""

from __future__ import annotations

import pytest

from infra.lab.drills.damage import Kind
from infra.lab.drills.failback import FAILBACK
from infra.lab.drills.mirror import MIRROR_LAG, mirror_crash
from infra.lab.drills.pair import Pair
from infra.lab.drills.planned import PLANNED
from infra.lab.drills.split_brain import SPLIT_BRAIN
from infra.lab.drills.unplanned import unplanned
from tests.dr.conftest import Hold
from tests.dr.full.by_hand import forced, interrupted
from tests.dr.full.drills import brokers_restart, database_is_lost

pytestmark = pytest.mark.timeout(1200)


def test_the_mirror_is_killed_five_times(pair: Pair, hold: Hold) -> None:
    report = hold(mirror_crash(5), pair)
    assert report.figures["records in aborted transactions"] > 0


def test_the_way_is_cut_and_slow(pair: Pair, hold: Hold) -> None:
    hold(MIRROR_LAG, pair)


def test_either_broker_restarts(pair: Pair, hold: Hold) -> None:
    hold(brokers_restart, pair)


def test_the_passive_database_is_lost(pair: Pair, hold: Hold) -> None:
    hold(database_is_lost, pair)


@pytest.mark.parametrize("number", range(3))
def test_planned(pair: Pair, hold: Hold, number: int) -> None:
    hold(PLANNED, pair, number)


@pytest.mark.parametrize("kind", [Kind.DEAD, Kind.FROZEN])
def test_a_loss_and_the_way_back(pair: Pair, hold: Hold, kind: Kind) -> None:
    hold(unplanned(kind), pair, list(Kind).index(kind))
    hold(FAILBACK, pair, list(Kind).index(kind))


@pytest.mark.parametrize(("number", "kind"), [(2, Kind.DEAD), (3, Kind.CUT), (4, None)])
def test_a_loss(pair: Pair, hold: Hold, number: int, kind: Kind | None) -> None:
    hold(unplanned(kind), pair, number)


def test_two_sites_write(pair: Pair, hold: Hold) -> None:
    hold(SPLIT_BRAIN, pair)


def test_the_command_itself_is_killed(pair: Pair, hold: Hold) -> None:
    hold(interrupted, pair)


def test_an_operator_forces_it_and_decides_at_the_prompt(pair: Pair, hold: Hold) -> None:
    hold(forced, pair)
