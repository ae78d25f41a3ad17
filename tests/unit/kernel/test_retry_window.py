"""Answers are remembered for the window, and no more of them than it says."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from contracts.kernel.records import Outcome, Remembered
from services.kernel.entities import MICROS_PER_HOUR, Entity, Partition, Window

HOUR = MICROS_PER_HOUR
Told = list[tuple[str, int]]
"""Whose answer, recorded when (hours); the answer's number is its place."""

told = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10)), max_size=30).map(
    lambda some: sorted(some, key=lambda each: each[1])
)


def filled(some: Told, window: Window) -> Partition[str]:
    partition: Partition[str] = Partition(
        "", lambda state, _: state, lambda _: (Entity("", 0, 0), ()), window
    )
    for number, (key, hours) in enumerate(some):
        outcome = Outcome(str(number), "T", key, "", "refused", 1, (), "", "no", "no", "hash", False)
        partition.remember(key, Remembered(outcome, hours * HOUR))
    return partition


def test_what_rests_now_and_then_forgets_what_has_left_the_window() -> None:
    """Woken up more often than the window lasts, it would keep its answers for ever."""
    entity = Entity("", 1, 0)
    partition: Partition[str] = Partition(
        "", lambda state, _: state, lambda snapshot: (entity, pickle.loads(snapshot)), Window(5.0, 100)
    )
    partition.put("a", entity)
    for now in range(20):
        partition.expire(now * HOUR)
        partition.get("a")
        assert {answer.recorded_at // HOUR for answer in partition.answers("a")} == set(
            range(max(0, now - 5), now)
        )
        outcome = Outcome(str(now), "T", "a", "", "refused", 1, (), "", "no", "no", "hash", False)
        partition.remember("a", Remembered(outcome, now * HOUR))
        partition.hold("a", pickle.dumps(partition.answers("a")))


def remembered(partition: Partition[str], some: Told) -> set[int]:
    return {
        number for number, (key, _) in enumerate(some) if partition.answered(key, str(number)) is not None
    }


@given(told, st.integers(0, 20))
def test_what_is_older_than_the_window_is_forgotten(some: Told, now: int) -> None:
    partition = filled(some, Window(5.0, 100))  # so few that each answer is a portion
    partition.expire(now * HOUR)
    assert remembered(partition, some) == {n for n, (_, hours) in enumerate(some) if hours >= now - 5}


@given(told, st.integers(0, 12))
def test_of_too_many_the_newest_are_remembered(some: Told, most: int) -> None:
    partition = filled(some, Window(5.0, most))
    partition.expire(0)
    assert remembered(partition, some) == set(range(len(some))[max(0, len(some) - most) :])


@given(told, st.integers(0, 20))
def test_in_portions_some_are_forgotten_later_and_none_earlier(some: Told, now: int) -> None:
    partition = filled(some, Window(5.0, 4_000))  # four answers are a portion
    partition.expire(now * HOUR)
    kept = remembered(partition, some)
    young = {number for number, (_, hours) in enumerate(some) if hours >= now - 5}
    assert young <= kept
    assert len(kept - young) < 4


@given(told)
def test_an_answer_that_was_remembered_twice_takes_no_later_one_with_it(some: Told) -> None:
    """As an entity that rested has its answers again when it is asked for."""
    partition = filled(some, Window(5.0, 100))
    for key, hours in some[:5]:
        for answer in partition.answers(key):
            partition.remember(key, answer)
        partition.expire((hours + 6) * HOUR)
        kept = remembered(partition, some)
        assert kept >= {number for number, (_, at) in enumerate(some) if at > hours}
