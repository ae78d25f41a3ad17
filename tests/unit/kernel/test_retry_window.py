"""Recorded outcomes are kept for the retry window, up to its largest number."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.kernel.records import Outcome, Remembered
from services.kernel.worker.entities import Entity, LoadedEntity, Partition
from services.kernel.worker.retry_window import MICROS_PER_HOUR, Window

HOUR = MICROS_PER_HOUR
Recorded = list[tuple[str, int]]
"""(key, hour of recording) of each outcome; an outcome's number is its index."""

outcomes_by_hour = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10)), max_size=30).map(
    lambda recorded: sorted(recorded, key=lambda outcome: outcome[1])
)


def refused(key: str, number: int) -> Outcome:
    return Outcome(str(number), "T", key, "", "refused", 1, (), "", "no", "no", "hash", False)


def filled(recorded: Recorded, window: Window) -> Partition[str]:
    partition: Partition[str] = Partition(
        "", lambda state, _: state, lambda _: LoadedEntity(Entity("", 0, 0), ()), window
    )
    for number, (key, hours) in enumerate(recorded):
        partition.record(key, Remembered(refused(key, number), hours * HOUR))
    return partition


def test_an_often_evicted_entity_loses_the_outcomes_outside_the_window() -> None:
    """Also when it is loaded more often than once per window."""
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
        assert {outcome.recorded_at // HOUR for outcome in partition.outcomes.of("a")} == set(
            range(max(0, now - 5), now)
        )
        partition.record("a", Remembered(refused("a", now), now * HOUR))
        partition.evict("a", pickle.dumps(partition.outcomes.of("a")))


def in_window(partition: Partition[str], recorded: Recorded) -> set[int]:
    return {
        number
        for number, (key, _) in enumerate(recorded)
        if partition.outcomes.outcome(key, str(number)) is not None
    }


@given(outcomes_by_hour, st.integers(0, 20))
def test_what_is_older_than_the_window_is_forgotten(recorded: Recorded, now: int) -> None:
    partition = filled(recorded, Window(5.0, 100))  # so few that each outcome is a portion
    partition.expire(now * HOUR)
    assert in_window(partition, recorded) == {n for n, (_, hours) in enumerate(recorded) if hours >= now - 5}


@given(outcomes_by_hour, st.integers(0, 12))
def test_of_too_many_the_newest_are_kept(recorded: Recorded, most: int) -> None:
    partition = filled(recorded, Window(5.0, most))
    partition.expire(0)
    assert in_window(partition, recorded) == set(range(len(recorded))[max(0, len(recorded) - most) :])


@given(outcomes_by_hour, st.integers(0, 20))
def test_in_portions_some_are_forgotten_later_and_none_earlier(recorded: Recorded, now: int) -> None:
    partition = filled(recorded, Window(5.0, 4_000))  # four outcomes are a portion
    partition.expire(now * HOUR)
    kept = in_window(partition, recorded)
    young = {number for number, (_, hours) in enumerate(recorded) if hours >= now - 5}
    assert young <= kept
    assert len(kept - young) < 4


@given(outcomes_by_hour)
def test_an_outcome_recorded_twice_removes_no_later_one(recorded: Recorded) -> None:
    """An evicted entity records its outcomes again when it is loaded."""
    partition = filled(recorded, Window(5.0, 100))
    for key, hours in recorded[:5]:
        for outcome in partition.outcomes.of(key):
            partition.record(key, outcome)
        partition.expire((hours + 6) * HOUR)
        kept = in_window(partition, recorded)
        assert kept >= {number for number, (_, at) in enumerate(recorded) if at > hours}


def evicting(most: int) -> tuple[Partition[str], Callable[[str, int], None], Callable[[str], None]]:
    """A partition, a function that records an outcome in it, and one that evicts an entity."""
    entity = Entity("", 1, 0)
    partition: Partition[str] = Partition(
        "",
        lambda state, _: state,
        lambda snapshot: LoadedEntity(entity, pickle.loads(snapshot)),
        Window(24.0, most),
    )

    def record(key: str, number: int) -> None:
        partition.put(key, partition.get(key)._replace(version=1))
        partition.record(key, Remembered(refused(key, number), number))

    def evict(key: str) -> None:
        partition.evict(key, pickle.dumps(partition.outcomes.of(key)))

    return partition, record, evict


def test_eviction_and_loading_count_no_outcome_twice() -> None:
    partition, record, evict = evicting(most=10)
    for number in range(5):
        record("a", number)
    record("b", 5)
    for now in range(50):
        evict("a")
        partition.get("a")
        partition.expire(now)
    assert all(partition.outcomes.outcome("a", str(number)) for number in range(5))
    assert partition.outcomes.outcome("b", "5") is not None
    for number in range(6, 12):
        record("b", number)
    partition.expire(50)
    assert {number for number in range(5) if partition.outcomes.outcome("a", str(number)) is None} == {0, 1}


def test_outcomes_dropped_while_evicted_stay_dropped() -> None:
    partition, record, evict = evicting(most=3)
    record("a", 1)
    record("a", 2)
    evict("a")
    for number in range(3, 6):
        record("b", number)
    partition.expire(6)
    partition.get("a")
    assert [recorded.outcome.command_id for recorded in partition.outcomes.of("a")] == []


def test_restored_outcomes_count_once_their_entity_is_loaded() -> None:
    partition, record, evict = evicting(most=3)
    restored = [Remembered(refused("a", number), number) for number in (1, 2)]
    partition.restore("a", pickle.dumps(restored))
    for _ in range(3):
        partition.get("a")
        evict("a")
    for number in (3, 4):
        record("b", number)
    partition.expire(4)
    partition.get("a")
    assert [recorded.outcome.command_id for recorded in partition.outcomes.of("a")] == ["2"]
    assert partition.outcomes.outcome("b", "3") is not None


@pytest.mark.parametrize("evicted", [False, True])
def test_closed_steps_are_forgotten_although_their_entity_was_evicted(evicted: bool) -> None:
    partition, put = steps()
    put("a", 1, 0)
    put("a", 2, HOUR)
    if evicted:
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

    def decode_snapshot(snapshot: bytes) -> LoadedEntity[tuple[int, ...]]:
        state = pickle.loads(snapshot)
        return LoadedEntity(Entity(state, state[-1], 0), ())

    partition: Partition[tuple[int, ...]] = Partition((), forget, decode_snapshot, Window(24.0, 100))

    def put(key: str, version: int, at: int) -> None:
        partition.put(key, Entity((*partition.get(key).state, version), version, at))
        partition.expire(at)

    return partition, put


def test_nothing_is_left_of_a_key_with_refusals_only_after_the_window() -> None:
    partition = filled([], Window(24.0, 100))
    partition.record("nobody", Remembered(refused("nobody", 1), HOUR))
    assert partition.changed() == {"nobody"}
    partition.expire(20 * HOUR)
    assert (partition.changed(), len(partition.outcomes.of("nobody"))) == (set(), 1)
    partition.expire(26 * HOUR)
    assert (partition.changed(), partition.outcomes.of("nobody")) == ({"nobody"}, [])
    assert len(partition) == 0
