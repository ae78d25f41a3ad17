"""Each promise of three brokers, put to the test by the drill that an operator can hold too."""

import pytest

from infra.drills.cluster.acks import acks
from infra.drills.cluster.broker_loss import broker_loss
from infra.drills.cluster.elections import elections
from tests.cluster.conftest import Hold

pytestmark = pytest.mark.timeout(900)


def test_only_replicas_in_sync_lead_and_settings_are_read_back(hold: Hold) -> None:
    hold(elections)


def test_only_acks_all_loses_nothing_when_leaders_die(hold: Hold) -> None:
    report = hold(acks)
    assert report.figures["acks=all, leader killed: acknowledged"] > 0


def test_one_broker_lost_stops_nothing_two_lost_refuse_and_both_back_recover(hold: Hold) -> None:
    report = hold(broker_loss)
    assert report.figures["commands answered"] > 0
