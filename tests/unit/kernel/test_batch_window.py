"""The batch window: it grows with the load up to a bound, and is longer when no client waits."""

from __future__ import annotations

import pytest

from services.kernel.worker.command_loop import MAX_BATCH, BatchWindow


def test_the_first_batch_does_not_wait() -> None:
    assert BatchWindow(0.005).lasts(awaited=False) == 0


@pytest.mark.parametrize(
    ("commands", "expected"), [(1, 0.0002), (10, 0.002), (25, 0.005), (500, 0.005), (0, 0.0)]
)
def test_a_window_follows_the_previous_batch(commands: int, expected: float) -> None:
    window = BatchWindow(0.005)
    window.took(commands)
    assert window.lasts(awaited=True) == pytest.approx(expected)


def test_the_window_is_ten_times_as_long_when_no_client_waits() -> None:
    window = BatchWindow(0.005)
    window.took(500)
    assert window.lasts(awaited=False) == pytest.approx(0.05)


def test_without_windows_no_batch_waits() -> None:
    window = BatchWindow(0.0)
    window.took(500)
    assert window.lasts(awaited=False) == 0


def test_a_window_ends_when_every_client_has_sent_again() -> None:
    window = BatchWindow(0.005)
    assert window.most(awaited=True, waited=1) == 1
    window.took(16)
    assert window.most(awaited=True, waited=0) == 16
    assert window.most(awaited=True, waited=8) == 24
    assert window.most(awaited=True, waited=MAX_BATCH) == MAX_BATCH


def test_a_window_lasts_while_no_client_waits() -> None:
    window = BatchWindow(0.005)
    window.took(16)
    assert window.most(awaited=False, waited=0) == MAX_BATCH
