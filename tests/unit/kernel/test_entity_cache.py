"""An evicted entity is kept as its snapshot: in any order of steps, nothing published is lost."""

from __future__ import annotations

import pickle

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contracts.kernel.records import Outcome, Remembered
from services.kernel.worker.entities import Entity, LoadedEntity, Partition
from services.kernel.worker.retry_window import Window

KEYS = st.sampled_from("ab")
FOR_EVER = Window(24.0, 1_000_000)


def decode_snapshot(snapshot: bytes) -> LoadedEntity[str]:
    entity, outcomes = pickle.loads(snapshot)
    return LoadedEntity(Entity(*entity), outcomes)


def recorded_outcome(key: str, number: int) -> Remembered:
    return Remembered(
        Outcome(str(number), "T", key, "", "refused", 1, (), "", "no", "no", "hash", False), number
    )


class OwnerAndWriter(RuleBasedStateMachine):
    """The owner publishes and evicts; the writer takes keys, reads snapshots and marks them as written.

    The writer's steps may be interleaved with anything, as they are between two threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.partition: Partition[str] = Partition("", lambda state, _: state, decode_snapshot, FOR_EVER)
        self.states: dict[str, Entity[str]] = {}
        self.recorded: dict[str, dict[str, Remembered]] = {key: {} for key in "ab"}
        self.keys_to_write: set[str] = set()
        self.read: dict[str, bytes] = {}
        self.number = 0

    def snapshot(self, key: str) -> bytes:
        return pickle.dumps((tuple(self.partition.get(key)), self.partition.outcomes.of(key)))

    @rule(key=KEYS)
    def an_event_is_published(self, key: str) -> None:
        self.number += 1
        before = self.partition.get(key)
        self.states[key] = Entity(f"state {self.number}", before.version + 1, self.number)
        self.partition.put(key, self.states[key])

    @rule(key=KEYS)
    def an_outcome_is_recorded(self, key: str) -> None:
        if key in self.states:
            self.number += 1
            self.partition.get(key)
            self.recorded[key][str(self.number)] = recorded_outcome(key, self.number)
            self.partition.record(key, self.recorded[key][str(self.number)])

    @rule(fails=st.booleans())
    def the_writer_takes_a_step(self, fails: bool) -> None:
        """Takes the keys, then reads the snapshots, then commits or fails."""
        if not self.keys_to_write:
            self.keys_to_write = self.partition.changed()
        elif not self.read:
            for key in self.keys_to_write:
                self.read[key] = self.partition.evicted(key) or self.snapshot(key)
        else:
            for key, snapshot in self.read.items():
                if fails:
                    self.partition.dirty.add(key)
                else:
                    self.partition.dirty.written(key, snapshot)
            self.keys_to_write, self.read = set(), {}

    @rule(most=st.integers(1, 2))
    def the_owner_evicts_unchanged_entities(self, most: int) -> None:
        self.partition.evict_unchanged(most)

    @rule(key=KEYS)
    def a_restore_keeps_only_the_snapshot(self, key: str) -> None:
        if key in self.states:
            self.partition.evict(key, self.snapshot(key))

    @rule(key=KEYS)
    def a_command_loads_the_entity(self, key: str) -> None:
        assert self.partition.get(key) == self.states.get(key, Entity("", 0, 0))
        for number, recorded in self.recorded[key].items():
            assert self.partition.outcomes.outcome(key, number) == recorded.outcome

    @invariant()
    def an_evicted_entity_has_everything_in_its_snapshot(self) -> None:
        for key, entity in self.states.items():
            cached = self.partition._entities[key]
            if (snapshot := self.partition.evicted(key)) is not None:
                evicted, outcomes, *_ = decode_snapshot(snapshot)
                assert evicted == entity
                assert {recorded.outcome.command_id for recorded in outcomes} == set(self.recorded[key])
            else:
                assert cached == entity
                assert set(self.recorded[key]) == {
                    recorded.outcome.command_id for recorded in self.partition.outcomes.of(key)
                }


TestOwnerAndWriter = OwnerAndWriter.TestCase


def test_an_entity_unchanged_between_two_snapshots_is_evicted_and_loaded_again() -> None:
    partition: Partition[str] = Partition("", lambda state, _: state, decode_snapshot, FOR_EVER)
    entity = Entity("settled", 1, 1)
    partition.put("a", entity)
    partition.record("a", recorded_outcome("a", 7))
    assert partition.changed() == {"a"}
    partition.dirty.written("a", pickle.dumps((tuple(entity), partition.outcomes.of("a"))))
    partition.evict_unchanged(10)
    assert partition.evicted("a") is None  # it may still change before the next snapshot
    assert partition.changed() == set()
    partition.evict_unchanged(10)
    assert partition.evicted("a") is not None
    assert partition.outcomes.of("a") == []
    assert partition.get("a") == entity
    assert partition.outcomes.outcome("a", "7") is not None
