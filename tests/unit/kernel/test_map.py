"""A map behaves like a dictionary and earlier maps stay unchanged. Its order is not observable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.kernel.model.map import Map, content_of

names = st.integers(0, 300).map(lambda number: f"order-{number}")  # few enough to meet again
numbers = st.integers(-5, 5)


class LikeADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.model = Map(), dict[str, int]()
        self.earlier: list[tuple[Map, dict[str, int]]] = []

    @rule(name=names, number=numbers)
    def put(self, name: str, number: int) -> None:
        self.map, self.model = self.map.put(name, number), {**self.model, name: number}

    @rule(first=st.integers(0, 250), count=st.integers(1, 60), number=numbers)
    def put_many(self, first: int, count: int, number: int) -> None:
        for order in range(first, first + count):
            self.put(f"order-{order}", number)

    @rule(name=names)
    def without(self, name: str) -> None:
        self.map = self.map.without(name)
        self.model = {key: value for key, value in self.model.items() if key != name}

    @rule(bound=numbers)
    def above(self, bound: int) -> None:
        self.map = self.map.above(bound)
        self.model = {key: value for key, value in self.model.items() if value > bound}

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
            assert content_of(kept) == model
            assert kept == Map(model)
            assert len(kept) == len(model)


TestLikeADictionary = LikeADictionary.TestCase


@given(st.dictionaries(names, numbers, min_size=1))
def test_maps_are_equal_by_content(content: dict[str, int]) -> None:
    made, grown = Map(content), Map()
    for name, number in reversed(content.items()):
        grown = grown.put(name, number)
    assert made == grown
    assert made != made.put("another", 1)
    assert made != content
    assert made.without("another") is made
    assert made.above(-6) is made


def test_nobody_sees_the_order_of_a_map() -> None:
    some = Map({"b": 2, "a": 1})
    with pytest.raises(TypeError, match="not iterable"):
        list(some)  # type: ignore[call-overload]
    assert not any(hasattr(some, name) for name in ("keys", "values", "items"))
    assert repr(some) == "Map({'a': 1, 'b': 2})"
