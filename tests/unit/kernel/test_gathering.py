"""How long a batch gathers: with the load, within its bound, longer while nobody waits for it."""

from __future__ import annotations

import pytest

from services.kernel.worker.staged import Gathering


def test_the_first_batch_does_not_wait() -> None:
    assert Gathering(0.005).lasts(awaited=False) == 0


@pytest.mark.parametrize(
    ("commands", "window"), [(1, 0.0002), (10, 0.002), (25, 0.005), (500, 0.005), (0, 0.0)]
)
def test_a_window_follows_the_batch_before(commands: int, window: float) -> None:
    gathering = Gathering(0.005)
    gathering.took(commands)
    assert gathering.lasts(awaited=True) == pytest.approx(window)


def test_what_nobody_waits_for_gathers_ten_times_as_long() -> None:
    gathering = Gathering(0.005)
    gathering.took(500)
    assert gathering.lasts(awaited=False) == pytest.approx(0.05)


def test_without_windows_nothing_gathers() -> None:
    gathering = Gathering(0.0)
    gathering.took(500)
    assert gathering.lasts(awaited=False) == 0
