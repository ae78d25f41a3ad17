"""Whoever is told to end while something is broken mends it first."""

import os
import signal

import pytest

from infra.stack.compose.failing import TOLD_TO_END, put_off


@pytest.mark.parametrize("number", TOLD_TO_END)
def test_the_end_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    before, mended = signal.getsignal(number), False
    with pytest.raises(KeyboardInterrupt), put_off() as told:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # somebody impatient
        assert told == [number, number]
        mended = True
    assert mended
    assert signal.getsignal(number) is before


def test_without_one_nothing_is_raised() -> None:
    with put_off() as told:
        pass
    assert told == []
