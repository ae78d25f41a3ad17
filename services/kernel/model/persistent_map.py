"""A mapping that is never changed: `put` and `without` answer a new one that shares most of the old one.

For states that grow with the load: a popular SKU has tens of thousands of conversations in its retry window,
and copying a dictionary of them for each event takes milliseconds. This is a hash trie with dictionaries as
its leaves: a change copies one leaf and the branches above it, whatever the size; small maps are one leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias, TypeVar, overload
from zlib import crc32

Other = TypeVar("Other")
Leaf: TypeAlias = dict[str, int]
Branch: TypeAlias = tuple["Node", ...]
Node: TypeAlias = Leaf | Branch

LARGEST_LEAF = 64
BITS = 5
WIDTH = 1 << BITS
DEEPEST = 32 // BITS  # where the hash ends; a leaf there grows as it must


class PersistentMap(Mapping[str, int]):
    """Names to numbers. Equal to any mapping with the same content; its order means nothing."""

    __slots__ = ("_length", "_root")

    def __init__(self, content: Mapping[str, int] | None = None) -> None:
        self._root: Node = _grown(dict(content or {}), 0)
        self._length = len(content or {})

    def put(self, key: str, value: int) -> PersistentMap:
        return self._with(_put(self._root, _digits(key), 0, key, value), self._length + (key not in self))

    def without(self, key: str) -> PersistentMap:
        """The same map where it has no such key."""
        if key not in self:
            return self
        return self._with(_without(self._root, _digits(key), key), self._length - 1)

    def plain(self) -> dict[str, int]:
        """A dictionary of its own: quicker than walking through this one."""
        content: dict[str, int] = {}
        for leaf in self.leaves():
            content.update(leaf)
        return content

    def leaves(self) -> Iterator[Leaf]:
        """The dictionaries that it consists of: not to be changed."""
        return _leaves(self._root)

    @overload
    def get(self, key: str, /) -> int | None: ...
    @overload
    def get(self, key: str, /, default: int | Other) -> int | Other: ...
    def get(self, key: str, /, default: Other | None = None) -> int | Other | None:
        return self._leaf(key).get(key, default)

    def __getitem__(self, key: str) -> int:
        return self._leaf(key)[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._leaf(key)

    def __iter__(self) -> Iterator[str]:
        for leaf in self.leaves():
            yield from leaf

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"PersistentMap({self.plain()!r})"

    def _leaf(self, key: str) -> Leaf:
        node = self._root
        if isinstance(node, tuple):
            digits = _digits(key)
            while isinstance(node, tuple):
                node, digits = node[digits % WIDTH], digits >> BITS
        return node

    def _with(self, root: Node, length: int) -> PersistentMap:
        new = object.__new__(PersistentMap)
        new._root, new._length = root, length
        return new


def _digits(key: str) -> int:
    """Where a key goes, a digit for each branch on the way. The same in every process, unlike `hash`: equal
    maps have equal snapshots."""
    return crc32(key.encode())


def _put(node: Node, digits: int, depth: int, key: str, value: int) -> Node:
    if isinstance(node, dict):
        return _grown({**node, key: value}, depth)
    place = digits % WIDTH
    return _replaced(node, place, _put(node[place], digits >> BITS, depth + 1, key, value))


def _without(node: Node, digits: int, key: str) -> Node:
    if isinstance(node, dict):
        leaf = node.copy()
        del leaf[key]
        return leaf
    place = digits % WIDTH
    return _replaced(node, place, _without(node[place], digits >> BITS, key))


def _replaced(branch: Branch, place: int, node: Node) -> Branch:
    nodes = list(branch)
    nodes[place] = node
    return tuple(nodes)


def _grown(leaf: Leaf, depth: int) -> Node:
    """The leaf itself, or a branch where it has become too large."""
    if len(leaf) <= LARGEST_LEAF or depth == DEEPEST:
        return leaf
    leaves: list[Leaf] = [{} for _ in range(WIDTH)]
    for key, value in leaf.items():
        leaves[(_digits(key) >> depth * BITS) % WIDTH][key] = value
    return tuple([_grown(part, depth + 1) for part in leaves])


def _leaves(node: Node) -> Iterator[Leaf]:
    if isinstance(node, dict):
        yield node
    else:
        for part in node:
            yield from _leaves(part)
