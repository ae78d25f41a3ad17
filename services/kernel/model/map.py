"""A map that never changes: `put` and `without` return a new one that shares most of the old one.

For states that grow with the load: a popular SKU has tens of thousands of conversations in its retry window,
and copying a dictionary of them for each event takes milliseconds. The library `immutables` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar, overload

import immutables

Other = TypeVar("Other")


class Map:
    """Names to numbers. Two maps with the same content are equal.

    It cannot be iterated: the order would depend on the process's hash seed, and so would a fold that uses it.
    """

    __slots__ = ("_content",)
    __iter__: ClassVar[None] = None

    def __init__(self, content: Mapping[str, int] | None = None) -> None:
        self._content: immutables.Map[str, int] = immutables.Map(content or {})

    def put(self, key: str, value: int) -> Map:
        return _around(self._content.set(key, value))

    def without(self, key: str) -> Map:
        """The same map where it has no such key."""
        return _around(self._content.delete(key)) if key in self._content else self

    def above(self, bound: int) -> Map:
        """Only the entries whose number is larger than `bound`; the same map where all are."""
        outside = [key for key, value in self._content.items() if value <= bound]
        if not outside:
            return self
        content = self._content.mutate()
        for key in outside:
            del content[key]
        return _around(content.finish())

    @overload
    def get(self, key: str) -> int | None: ...
    @overload
    def get(self, key: str, default: int | Other) -> int | Other: ...
    def get(self, key: str, default: int | Other | None = None) -> int | Other | None:
        return self._content.get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def __len__(self) -> int:
        return len(self._content)

    def __eq__(self, other: object) -> bool:
        return self._content == other._content if isinstance(other, Map) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Map({dict(sorted(self._content.items()))!r})"


def content_of(a_map: Map) -> dict[str, int]:
    """The entries in an arbitrary order: for the snapshot codec, which sorts them. A domain may not import it."""
    return dict(a_map._content.items())


def _around(content: immutables.Map[str, int]) -> Map:
    new = object.__new__(Map)
    new._content = content
    return new
