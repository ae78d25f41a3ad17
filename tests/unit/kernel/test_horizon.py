"""How far back a takeover repeats outgoing commands."""

from services.kernel.worker.takeover import MARGIN_MS, horizon

HOUR = 3_600_000
NOW = 1_800_000_000_000


def test_logs_that_end_together_are_asked_about_their_last_minutes() -> None:
    assert horizon([NOW, NOW - 40, NOW - 900], HOUR, MARGIN_MS) == NOW - 900 - MARGIN_MS


def test_a_partition_that_lags_takes_the_horizon_back() -> None:
    assert horizon([NOW, NOW - HOUR // 2], HOUR, MARGIN_MS) == NOW - HOUR // 2 - MARGIN_MS


def test_it_is_never_longer_than_the_longest() -> None:
    assert horizon([NOW, NOW - HOUR + 1], HOUR, MARGIN_MS) == NOW - HOUR


def test_a_quiet_partition_is_not_a_cut_one() -> None:
    assert horizon([NOW, NOW - 24 * HOUR], HOUR, MARGIN_MS) == NOW - MARGIN_MS


def test_an_empty_log_has_none() -> None:
    assert horizon([], HOUR, MARGIN_MS) == 0
