"""Which site epoch wrote which versions of a stream: tells whether a token's event still exists."""

from __future__ import annotations

from collections.abc import Sequence

Lineage = tuple[tuple[int, int], ...]
"""(epoch, the first version written under it), ascending."""


def extend(lineage: Lineage, epoch: int, version: int) -> Lineage:
    if lineage and lineage[-1][0] == epoch:
        return lineage
    return (*lineage, (epoch, version))


def epoch_of(lineage: Sequence[Sequence[int]], version: int) -> int:
    """The epoch that wrote `version`; 0 before the first."""
    return max((epoch for epoch, first in lineage if first <= version), default=0)
