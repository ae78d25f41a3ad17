"""When a mirror is held to have stopped."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from infra.dr.mirror_watch import STOPPED_SECONDS, MirrorPulse


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_beats_that_were_due_and_did_not_come_are_a_stop(clock: Clock) -> None:
    pulse = MirrorPulse(clock)
    pulse.expect(True)
    pulse.beat()
    clock.now += STOPPED_SECONDS
    assert pulse.stopped_for() is None
    clock.now += 1
    assert pulse.stopped_for() == STOPPED_SECONDS + 1
    pulse.beat()
    assert pulse.stopped_for() is None


def test_what_is_not_expected_is_not_missed(clock: Clock) -> None:
    pulse = MirrorPulse(clock)
    clock.now += 10 * STOPPED_SECONDS
    assert pulse.stopped_for() is None
    pulse.expect(True)
    pulse.expect(False)  # the other site is silent, or rests
    clock.now += 10 * STOPPED_SECONDS
    assert pulse.stopped_for() is None


def test_it_is_missed_from_when_it_is_expected_again(clock: Clock) -> None:
    pulse = MirrorPulse(clock)
    pulse.beat()
    clock.now += 10 * STOPPED_SECONDS
    pulse.expect(True)
    pulse.expect(True)
    clock.now += STOPPED_SECONDS
    assert pulse.stopped_for() is None
    clock.now += 1
    assert pulse.stopped_for() == STOPPED_SECONDS + 1


def test_a_mirror_that_copies_something_else_has_not_stopped(clock: Clock) -> None:
    pulse, canaries = MirrorPulse(clock), ("site.canary", 0)
    pulse.expect(True)
    for position in range(3):
        pulse.copied_to({canaries: 0, ("order.events", 0): position})
        clock.now += STOPPED_SECONDS
        assert pulse.stopped_for() is None
    clock.now += 1
    pulse.copied_to({})  # not known
    pulse.copied_to({canaries: 0, ("order.events", 0): 2})
    assert pulse.stopped_for() == STOPPED_SECONDS + 1
