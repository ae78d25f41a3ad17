"""What rests is held as its snapshot: whatever the order of things, nothing published is forgotten."""

from __future__ import annotations

import pickle

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contracts.kernel.records import Outcome, Remembered
from services.kernel.worker.entities import Partition
from services.kernel.worker.entity import Entity, LoadedEntity
from services.kernel.worker.retry_window import Window

KEYS = st.sampled_from("ab")
FOR_EVER = Window(24.0, 1_000_000)


def thaw(snapshot: bytes) -> LoadedEntity[str]:
    entity, answers = pickle.loads(snapshot)
    return LoadedEntity(Entity(*entity), answers)


def answer(key: str, number: int) -> Remembered:
    return Remembered(
        Outcome(str(number), "T", key, "", "refused", 1, (), "", "no", "no", "hash", False), number
    )


class OwnerAndWriter(RuleBasedStateMachine):
    """The owner publishes and lets things rest; the writer takes names, reads, and says what it wrote.

    The writer's steps may be interleaved with anything, as they are between two threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.partition: Partition[str] = Partition("", lambda state, _: state, thaw, FOR_EVER)
        self.states: dict[str, Entity[str]] = {}
        self.answers: dict[str, dict[str, Remembered]] = {key: {} for key in "ab"}
        self.named: set[str] = set()
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
    def an_answer_is_published(self, key: str) -> None:
        if key in self.states:
            self.number += 1
            self.partition.get(key)
            self.answers[key][str(self.number)] = answer(key, self.number)
            self.partition.record(key, self.answers[key][str(self.number)])

    @rule(fails=st.booleans())
    def the_writer_goes_a_step_further(self, fails: bool) -> None:
        """Takes the names, then reads, then commits or fails to."""
        if not self.named:
            self.named = self.partition.changed()
        elif not self.read:
            for key in self.named:
                self.read[key] = self.partition.evicted(key) or self.snapshot(key)
        else:
            for key, snapshot in self.read.items():
                if fails:
                    self.partition.dirty.add(key)
                else:
                    self.partition.dirty.written(key, snapshot)
            self.named, self.read = set(), {}

    @rule(most=st.integers(1, 2))
    def the_owner_lets_things_rest(self, most: int) -> None:
        self.partition.evict_unchanged(most)

    @rule(key=KEYS)
    def a_restore_holds_it_as_its_snapshot(self, key: str) -> None:
        if key in self.states:
            self.partition.evict(key, self.snapshot(key))

    @rule(key=KEYS)
    def a_command_looks(self, key: str) -> None:
        assert self.partition.get(key) == self.states.get(key, Entity("", 0, 0))
        for number, remembered in self.answers[key].items():
            assert self.partition.outcomes.outcome(key, number) == remembered.outcome

    @invariant()
    def what_rests_has_everything_in_its_snapshot(self) -> None:
        for key, entity in self.states.items():
            held = self.partition._entities[key]
            if (snapshot := self.partition.evicted(key)) is not None:
                resting, answers, *_ = thaw(snapshot)
                assert resting == entity
                assert {each.outcome.command_id for each in answers} == set(self.answers[key])
            else:
                assert held == entity
                assert set(self.answers[key]) == {
                    each.outcome.command_id for each in self.partition.outcomes.of(key)
                }


TestOwnerAndWriter = OwnerAndWriter.TestCase


def test_what_is_not_touched_from_one_writing_to_the_next_rests_and_comes_back() -> None:
    partition: Partition[str] = Partition("", lambda state, _: state, thaw, FOR_EVER)
    entity = Entity("settled", 1, 1)
    partition.put("a", entity)
    partition.record("a", answer("a", 7))
    assert partition.changed() == {"a"}
    partition.dirty.written("a", pickle.dumps((tuple(entity), partition.outcomes.of("a"))))
    partition.evict_unchanged(10)
    assert partition.evicted("a") is None  # it may still change before the next writing
    assert partition.changed() == set()
    partition.evict_unchanged(10)
    assert partition.evicted("a") is not None
    assert partition.outcomes.of("a") == []
    assert partition.get("a") == entity
    assert partition.outcomes.outcome("a", "7") is not None
