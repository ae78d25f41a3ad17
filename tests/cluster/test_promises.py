"""Each promise of three brokers, put to the test by the drill that an operator can hold too."""

import pytest

from infra.lab.drills.cluster.availability import BROKER_LOSS, REASSIGN, REPARTITION, ROLLING, UPGRADE
from infra.lab.drills.cluster.curves import CURVES
from infra.lab.drills.cluster.followers import REPLICA_LAG, SEGMENT_RECOVERY
from infra.lab.drills.cluster.groups import GROUPS, STATIC_MEMBERS
from infra.lab.drills.cluster.losses import DISK_LOSS, QUORUM_LOSS
from infra.lab.drills.cluster.replication import ACKNOWLEDGEMENTS, ELECTIONS, RACKS
from infra.lab.drills.cluster.retries import RETRIES
from infra.lab.drills.cluster.semantics import COPIES
from infra.lab.drills.cluster.storage import RETENTION, SIZES
from tests.cluster.conftest import RunDrill

pytestmark = pytest.mark.timeout(900)


def test_only_replicas_in_sync_lead_and_settings_are_read_back(run_drill: RunDrill) -> None:
    run_drill(ELECTIONS)


def test_only_acks_all_loses_nothing_when_leaders_die(run_drill: RunDrill) -> None:
    report = run_drill(ACKNOWLEDGEMENTS)
    assert report.figures["acks=all, leader killed: acknowledged"] > 0


def test_at_most_at_least_and_exactly_once(run_drill: RunDrill) -> None:
    run_drill(COPIES)


def test_a_log_keeps_what_its_settings_say(run_drill: RunDrill) -> None:
    run_drill(RETENTION)


def test_readers_are_served_in_their_rack(run_drill: RunDrill) -> None:
    run_drill(RACKS)


def test_no_size_of_a_record_is_refused_up_to_a_mebibyte(run_drill: RunDrill) -> None:
    report = run_drill(CURVES)
    assert report.figures["none, 1,048,576 B, linger 2 ms: MiB/s"] > 0


def test_one_broker_lost_stops_nothing_two_lost_refuse_and_both_back_recover(run_drill: RunDrill) -> None:
    report = run_drill(BROKER_LOSS)
    assert report.figures["commands answered"] > 0


def test_no_command_fails_while_every_node_is_restarted_with_new_settings(run_drill: RunDrill) -> None:
    run_drill(ROLLING)


def test_a_fourth_broker_takes_partitions_and_gives_them_back(run_drill: RunDrill) -> None:
    run_drill(REASSIGN)


def test_orders_of_a_mebibyte_pass_and_greedy_clients_are_slowed_down(run_drill: RunDrill) -> None:
    run_drill(SIZES)


def test_a_spare_projection_worker_takes_over(run_drill: RunDrill) -> None:
    run_drill(GROUPS)


def test_more_partitions_keep_every_keys_order(run_drill: RunDrill) -> None:
    run_drill(REPARTITION)


def test_without_a_quorum_leaders_write_on_and_none_is_elected(run_drill: RunDrill) -> None:
    report = run_drill(QUORUM_LOSS)
    assert report.figures["commands answered"] > 0


def test_a_broker_returns_without_its_disk(run_drill: RunDrill) -> None:
    report = run_drill(DISK_LOSS)
    assert report.figures["commands answered"] > 0


def test_idempotence_prevents_doubles_and_unknown_topics_are_refused(run_drill: RunDrill) -> None:
    report = run_drill(RETRIES)
    assert report.figures["without idempotence: doubled"] > 0


def test_a_static_members_restart_moves_no_partition(run_drill: RunDrill) -> None:
    run_drill(STATIC_MEMBERS)


def test_a_short_lag_lets_writes_go_on_without_a_slow_follower(run_drill: RunDrill) -> None:
    run_drill(REPLICA_LAG)


def test_small_segments_are_recovered_sooner(run_drill: RunDrill) -> None:
    run_drill(SEGMENT_RECOVERY)


def test_no_command_fails_while_every_node_moves_to_the_next_release(run_drill: RunDrill) -> None:
    """The last one: the cluster stays with that release."""
    run_drill(UPGRADE)
