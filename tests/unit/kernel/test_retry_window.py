"""Answers are remembered for the window, and no more of them than it says."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.kernel.records import Outcome, Remembered
from services.kernel.worker.entities import Partition
from services.kernel.worker.entity import Entity, LoadedEntity
from services.kernel.worker.retry_window import MICROS_PER_HOUR, Window

HOUR = MICROS_PER_HOUR
Told = list[tuple[str, int]]
"""Whose answer, recorded when (hours); the answer's number is its place."""

told = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10)), max_size=30).map(
    lambda some: sorted(some, key=lambda each: each[1])
)


def refused(key: str, number: int) -> Outcome:
    return Outcome(str(number), "T", key, "", "refused", 1, (), "", "no", "no", "hash", False)


def filled(some: Told, window: Window) -> Partition[str]:
    partition: Partition[str] = Partition(
        "", lambda state, _: state, lambda _: LoadedEntity(Entity("", 0, 0), ()), window
    )
    for number, (key, hours) in enumerate(some):
        partition.record(key, Remembered(refused(key, number), hours * HOUR))
    return partition


def test_what_rests_now_and_then_forgets_what_has_left_the_window() -> None:
    """Woken up more often than the window lasts, it would keep its answers for ever."""
    entity = Entity("", 1, 0)
    partition: Partition[str] = Partition(
        "",
        lambda state, _: state,
        lambda snapshot: LoadedEntity(entity, pickle.loads(snapshot)),
        Window(5.0, 100),
    )
    partition.put("a", entity)
    for now in range(20):
        partition.expire(now * HOUR)
        partition.get("a")
        assert {answer.recorded_at // HOUR for answer in partition.outcomes.of("a")} == set(
            range(max(0, now - 5), now)
        )
        partition.record("a", Remembered(refused("a", now), now * HOUR))
        partition.evict("a", pickle.dumps(partition.outcomes.of("a")))


def remembered(partition: Partition[str], some: Told) -> set[int]:
    return {
        number
        for number, (key, _) in enumerate(some)
        if partition.outcomes.outcome(key, str(number)) is not None
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
        for answer in partition.outcomes.of(key):
            partition.record(key, answer)
        partition.expire((hours + 6) * HOUR)
        kept = remembered(partition, some)
        assert kept >= {number for number, (_, at) in enumerate(some) if at > hours}


def resting(most: int) -> tuple[Partition[str], Callable[[str, int], None], Callable[[str], None]]:
    """A partition, how a request is answered in it, and how an entity of it goes to rest."""
    entity = Entity("", 1, 0)
    partition: Partition[str] = Partition(
        "",
        lambda state, _: state,
        lambda snapshot: LoadedEntity(entity, pickle.loads(snapshot)),
        Window(24.0, most),
    )

    def answer(key: str, number: int) -> None:
        partition.put(key, partition.get(key)._replace(version=1))
        partition.record(key, Remembered(refused(key, number), number))

    def rest(key: str) -> None:
        partition.evict(key, pickle.dumps(partition.outcomes.of(key)))

    return partition, answer, rest


def test_to_rest_and_wake_up_again_makes_no_answer_count_twice() -> None:
    partition, answer, rest = resting(most=10)
    for number in range(5):
        answer("a", number)
    answer("b", 5)
    for now in range(50):
        rest("a")
        partition.get("a")
        partition.expire(now)
    assert all(partition.outcomes.outcome("a", str(number)) for number in range(5))
    assert partition.outcomes.outcome("b", "5") is not None
    for number in range(6, 12):
        answer("b", number)
    partition.expire(50)
    assert {number for number in range(5) if partition.outcomes.outcome("a", str(number)) is None} == {0, 1}


def test_what_rests_while_it_is_dropped_for_too_many_is_not_there_afterwards() -> None:
    partition, answer, rest = resting(most=3)
    answer("a", 1)
    answer("a", 2)
    rest("a")
    for number in range(3, 6):
        answer("b", number)
    partition.expire(6)
    partition.get("a")
    assert [answer.outcome.command_id for answer in partition.outcomes.of("a")] == []


def test_what_a_restore_found_counts_when_it_is_looked_at() -> None:
    partition, answer, rest = resting(most=3)
    found = [Remembered(refused("a", number), number) for number in (1, 2)]
    partition.restore("a", pickle.dumps(found))
    for _ in range(3):
        partition.get("a")
        rest("a")
    for number in (3, 4):
        answer("b", number)
    partition.expire(4)
    partition.get("a")
    assert [answer.outcome.command_id for answer in partition.outcomes.of("a")] == ["2"]
    assert partition.outcomes.outcome("b", "3") is not None


@pytest.mark.parametrize("rests", [False, True])
def test_closed_steps_are_forgotten_although_their_entity_rested(rests: bool) -> None:
    partition, put = steps()
    put("a", 1, 0)
    put("a", 2, HOUR)
    if rests:
        partition.evict("a", pickle.dumps(partition.get("a").state))
    for hour in range(2, 30):
        partition.expire(hour * HOUR)
        put("another", hour, hour * HOUR)
    put("a", 3, 30 * HOUR)
    assert partition.get("a").state == (3,)


def test_a_takeover_keeps_closed_steps_for_another_window() -> None:
    partition, put = steps()
    put("a", 1, 0)
    partition.evict("a", pickle.dumps(partition.get("a").state))
    put("b", 1, 0)
    partition.expire(2 * HOUR)
    partition.steps.keep(50 * HOUR)
    partition.expire(51 * HOUR)
    for key in "ab":
        put(key, 2, 51 * HOUR)
        assert partition.get(key).state == (1, 2)
    for hour in range(52, 80):
        partition.expire(hour * HOUR)
    put("a", 3, 80 * HOUR)
    assert partition.get("a").state == (3,)


def steps() -> tuple[Partition[tuple[int, ...]], Callable[[str, int, int], None]]:
    """Entities whose state is the versions of their steps, and how one takes a step."""

    def forget(state: tuple[int, ...], version: int) -> tuple[int, ...]:
        return tuple(step for step in state if step > version)

    def thaw(snapshot: bytes) -> LoadedEntity[tuple[int, ...]]:
        state = pickle.loads(snapshot)
        return LoadedEntity(Entity(state, state[-1], 0), ())

    partition: Partition[tuple[int, ...]] = Partition((), forget, thaw, Window(24.0, 100))

    def put(key: str, version: int, at: int) -> None:
        partition.put(key, Entity((*partition.get(key).state, version), version, at))
        partition.expire(at)

    return partition, put


def test_of_a_name_that_was_only_refused_nothing_is_left_after_the_window() -> None:
    partition = filled([], Window(24.0, 100))
    partition.record("nobody", Remembered(refused("nobody", 1), HOUR))
    assert partition.changed() == {"nobody"}
    partition.expire(20 * HOUR)
    assert (partition.changed(), len(partition.outcomes.of("nobody"))) == (set(), 1)
    partition.expire(26 * HOUR)
    assert (partition.changed(), partition.outcomes.of("nobody")) == ({"nobody"}, [])
    assert len(partition) == 0
