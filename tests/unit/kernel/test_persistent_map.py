"""A persistent map does what a dictionary does, and what was made of it earlier stays as it was."""

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.kernel.model.persistent_map import LARGEST_LEAF, PersistentMap

# few enough to meet again, more than a leaf holds
names = st.integers(0, 5 * LARGEST_LEAF).map(lambda number: f"order-{number}")
numbers = st.integers(-5, 5)


def of_one_place(count: int) -> list[str]:
    """Names that a branch of the first three levels cannot tell apart."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        if crc32(f"n{number}".encode()) % (1 << 15) == 0:
            found.append(f"n{number}")
        number += 1
    return found


class LikeADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.model = PersistentMap(), dict[str, int]()
        self.earlier: list[tuple[PersistentMap, dict[str, int]]] = []

    @rule(name=names, number=numbers)
    def put(self, name: str, number: int) -> None:
        self.map, self.model = self.map.put(name, number), {**self.model, name: number}

    @rule(first=st.integers(0, 4 * LARGEST_LEAF), count=st.integers(1, LARGEST_LEAF), number=numbers)
    def put_many(self, first: int, count: int, number: int) -> None:
        for place in range(first, first + count):
            self.put(f"order-{place}", number)

    @rule(name=names)
    def without(self, name: str) -> None:
        self.map = self.map.without(name)
        self.model = {key: value for key, value in self.model.items() if key != name}

    @rule()
    def keep(self) -> None:
        self.earlier.append((self.map, dict(self.model)))

    @rule(name=names)
    def look(self, name: str) -> None:
        assert (name in self.map) == (name in self.model)
        assert self.map.get(name, 99) == self.model.get(name, 99)
        assert self.map.get(name) == self.model.get(name)

    @invariant()
    def the_same(self) -> None:
        for kept, model in [*self.earlier, (self.map, self.model)]:
            assert kept.plain() == dict(kept) == model
            assert kept == model
            assert len(kept) == len(model)


TestLikeADictionary = LikeADictionary.TestCase


@given(st.dictionaries(names, numbers, max_size=3 * LARGEST_LEAF))
def test_the_way_a_map_was_made_does_not_show(content: dict[str, int]) -> None:
    made, grown = PersistentMap(content), PersistentMap()
    for name, number in reversed(content.items()):
        grown = grown.put(name, number)
    assert made == grown
    assert [sorted(leaf) for leaf in made.leaves()] == [sorted(leaf) for leaf in grown.leaves()]


def test_names_that_meet_in_one_place_are_told_apart() -> None:
    names = of_one_place(2 * LARGEST_LEAF)
    together = PersistentMap({name: place for place, name in enumerate(names)})
    one_by_one = PersistentMap()
    for place, name in enumerate(names):
        one_by_one = one_by_one.put(name, place)
    assert one_by_one == together
    assert [together[name] for name in names] == list(range(len(names)))


def test_a_change_copies_one_leaf_and_shares_the_rest() -> None:
    large = PersistentMap({f"order-{number}": number for number in range(100 * LARGEST_LEAF)})
    before = {id(leaf) for leaf in large.leaves()}
    after = [leaf for leaf in large.put("another", 1).without("order-7").leaves() if id(leaf) not in before]
    assert len(after) <= 2
    assert all(len(leaf) <= LARGEST_LEAF for leaf in after)
