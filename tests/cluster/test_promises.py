"""Each promise of three brokers, put to the test by the drill that an operator can hold too."""

import pytest

from infra.lab.drills.cluster.acks import acks
from infra.lab.drills.cluster.broker_loss import broker_loss
from infra.lab.drills.cluster.curves import curves
from infra.lab.drills.cluster.elections import elections
from infra.lab.drills.cluster.groups import groups
from infra.lab.drills.cluster.racks import racks
from infra.lab.drills.cluster.reassign import reassignment
from infra.lab.drills.cluster.repartition import repartition
from infra.lab.drills.cluster.retention import retention
from infra.lab.drills.cluster.rolling import rolling
from infra.lab.drills.cluster.semantics import semantics
from infra.lab.drills.cluster.sizes import sizes
from tests.cluster.conftest import Hold

pytestmark = pytest.mark.timeout(900)


def test_only_replicas_in_sync_lead_and_settings_are_read_back(hold: Hold) -> None:
    hold(elections)


def test_only_acks_all_loses_nothing_when_leaders_die(hold: Hold) -> None:
    report = hold(acks)
    assert report.figures["acks=all, leader killed: acknowledged"] > 0


def test_at_most_at_least_and_exactly_once(hold: Hold) -> None:
    hold(semantics)


def test_a_log_keeps_what_its_settings_say(hold: Hold) -> None:
    hold(retention)


def test_readers_are_served_in_their_rack(hold: Hold) -> None:
    hold(racks)


def test_no_size_of_a_record_is_refused_up_to_a_mebibyte(hold: Hold) -> None:
    report = hold(curves)
    assert report.figures["none, 1,048,576 B, linger 2 ms: MiB/s"] > 0


def test_one_broker_lost_stops_nothing_two_lost_refuse_and_both_back_recover(hold: Hold) -> None:
    report = hold(broker_loss)
    assert report.figures["commands answered"] > 0


def test_no_command_fails_while_every_node_is_restarted_with_new_settings(hold: Hold) -> None:
    hold(rolling)


def test_a_fourth_broker_takes_partitions_and_gives_them_back(hold: Hold) -> None:
    hold(reassignment)


def test_orders_of_a_mebibyte_pass_and_greedy_clients_are_slowed_down(hold: Hold) -> None:
    hold(sizes)


def test_a_spare_projection_worker_takes_over(hold: Hold) -> None:
    hold(groups)


def test_more_partitions_keep_every_keys_order(hold: Hold) -> None:
    hold(repartition)
