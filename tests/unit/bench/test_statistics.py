"""The statistics behind the tables, with figures that can be checked by hand."""

import math

import pytest

from tests.bench.harness import Contender, Measured, Window, interleave
from tests.bench.statistics import Spread, quantile, ratios, slope, spread


def test_spread_is_median_least_and_greatest() -> None:
    assert spread([5, 1, 9, 2, 3]) == Spread(3, 1, 9)
    assert spread([4, 2]) == Spread(3, 2, 4)


def test_no_figures_have_no_spread() -> None:
    with pytest.raises(ValueError, match="no figures"):
        spread([])
    with pytest.raises(ValueError, match="no figures"):
        quantile([], 0.5)


def test_ratios_pair_window_by_window() -> None:
    assert ratios([10, 30], [5, 10]) == [2, 3]


def test_a_peer_that_did_nothing_is_infinitely_slower() -> None:
    assert ratios([10], [0]) == [math.inf]


def test_windows_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="2 windows do not pair with 1"):
        ratios([1, 2], [1])


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (0.995, 100), (1.0, 100)]
)
def test_quantile_is_a_figure_that_was_seen(share: float, expected: int) -> None:
    assert quantile(list(range(100, 0, -1)), share) == expected


def test_slope_of_a_line_and_of_a_point() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert slope([(1, 7), (1, 9)]) == 0


def test_the_ratio_is_taken_of_pairs_not_of_medians() -> None:
    windows = {"ours": [Window(10), Window(1), Window(20)], "theirs": [Window(10), Window(2), Window(5)]}
    row = Measured("what", "1/s", windows)
    assert row.ratio("theirs") == Spread(1, 0.5, 4)
    assert row.subject == "ours"


def test_a_goal_may_be_a_floor_or_a_ceiling() -> None:
    row = Measured("what", "1/s", {"ours": [Window(10)]})
    row.reach("floor", 10, 10)
    row.reach("ceiling", 11, 10, at_least=False)
    assert [goal.met for goal in row.goals] == [True, False]


def test_contenders_take_turns_and_the_warm_round_is_not_counted() -> None:
    order: list[str] = []

    def contender(name: str) -> Contender:
        def measure() -> Window:
            order.append(name)
            return Window(len(order))

        return Contender(name, measure)

    taken = interleave([contender("a"), contender("b")], 2, lambda _: None)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert [window.figure for window in taken["a"]] == [3, 6]
    assert [window.figure for window in taken["b"]] == [4, 5]


def test_every_round_is_prepared() -> None:
    rounds: list[int] = []
    interleave(
        [Contender("a", lambda: Window(1))], 3, lambda _: None, warm=False, before=lambda: rounds.append(1)
    )
    assert len(rounds) == 3
