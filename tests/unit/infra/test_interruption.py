"""Whoever is told to end while something is broken mends it first."""

import os
import signal

import pytest

from infra.stack.compose.engine import END_SIGNALS, signals_deferred


@pytest.mark.parametrize("number", END_SIGNALS)
def test_the_end_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    before, mended = signal.getsignal(number), False
    with pytest.raises(KeyboardInterrupt), signals_deferred() as received:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # somebody impatient
        assert received == [number, number]
        mended = True
    assert mended
    assert signal.getsignal(number) is before


def test_without_one_nothing_is_raised() -> None:
    with signals_deferred() as received:
        pass
    assert received == []
