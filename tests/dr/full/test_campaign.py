"""The whole campaign: losses of every kind, switchovers, ways back, kills of the mirror, on shared sites."""

from __future__ import annotations

import pytest

from infra.lab.drills.mirror import MIRROR_LAG, mirror_crash
from infra.lab.drills.pair import Kind, Pair
from infra.lab.drills.router import routed
from infra.lab.drills.site_loss import DESTROYED
from infra.lab.drills.switchover import FAILBACK, PLANNED
from infra.lab.drills.takeover import BOTH_SITES, REPLACED, SPLIT_BRAIN, unplanned
from tests.dr.conftest import RunDrill
from tests.dr.full.by_hand import FORCED, INTERRUPTED
from tests.dr.full.drills import BROKERS_RESTART, DATABASE_LOST

pytestmark = pytest.mark.timeout(1200)


def test_the_mirror_is_killed_five_times(pair: Pair, run_drill: RunDrill) -> None:
    report = run_drill(mirror_crash(5), pair)
    assert report.figures["records in aborted transactions"] > 0


def test_the_way_is_cut_and_slow(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(MIRROR_LAG, pair)


def test_either_broker_restarts(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(BROKERS_RESTART, pair)


def test_the_passive_database_is_lost(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(DATABASE_LOST, pair)


@pytest.mark.parametrize("number", range(3))
def test_planned(pair: Pair, run_drill: RunDrill, number: int) -> None:
    run_drill(PLANNED, pair, number)


@pytest.mark.parametrize("kind", [Kind.DEAD, Kind.FROZEN])
def test_a_loss_and_the_way_back(pair: Pair, run_drill: RunDrill, kind: Kind) -> None:
    run_drill(unplanned(kind), pair, list(Kind).index(kind))
    run_drill(FAILBACK, pair, list(Kind).index(kind))


@pytest.mark.parametrize(("number", "kind"), [(2, Kind.DEAD), (3, Kind.CUT), (4, None)])
def test_a_loss(pair: Pair, run_drill: RunDrill, number: int, kind: Kind | None) -> None:
    run_drill(unplanned(kind), pair, number)


def test_what_was_reported_on_both_sites_is_kept(pair: Pair, run_drill: RunDrill) -> None:
    report = run_drill(BOTH_SITES, pair)
    assert report.figures["writes reported as on both sites"] > 0


def test_a_site_is_lost_with_its_disks(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(DESTROYED, pair)


def test_two_sites_write(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(SPLIT_BRAIN, pair)


@pytest.mark.parametrize("number", range(3))
def test_a_frozen_site_is_replaced_under_its_clients(pair: Pair, run_drill: RunDrill, number: int) -> None:
    run_drill(REPLACED, pair, number)


def test_the_command_itself_is_killed(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(INTERRUPTED, pair)


def test_an_operator_forces_it_and_decides_at_the_prompt(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(FORCED, pair)


def test_clients_of_the_router_see_only_503s(pair: Pair, run_drill: RunDrill) -> None:
    report = run_drill(routed(2, 500, 40.0), pair)
    assert report.figures["repeats"] >= 500
