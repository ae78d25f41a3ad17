"""Where the accounts of one entity begin to differ."""

from analytics.evidence.comparison import first_difference

LOG = {1: "a", 2: "b", 3: "c"}


def test_a_row_that_is_behind_differs_from_its_next_version() -> None:
    assert first_difference(LOG, LOG, (2, "b"), None) == 3


def test_a_row_that_is_missing_differs_from_the_first() -> None:
    assert first_difference(LOG, LOG, None, None) == 1


def test_a_row_that_is_ahead_differs_after_the_last() -> None:
    assert first_difference(LOG, LOG, (5, "e"), None) == 4


def test_a_changed_row_differs_at_its_version() -> None:
    assert first_difference(LOG, LOG, (3, "x"), None) == 3


def test_the_earliest_cause_is_named() -> None:
    assert first_difference(LOG, {**LOG, 2: "x"}, (3, "x"), None) == 2
    assert first_difference(LOG, LOG, (3, "x"), 1) == 1
