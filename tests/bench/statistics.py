"""The few statistics that the tables need."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """The median, minimum and maximum of some figures."""

    median: float
    low: float
    high: float


def spread(figures: Sequence[float]) -> Spread:
    """Raises ValueError where there is no figure."""
    if not figures:
        raise ValueError("no figures")
    return Spread(statistics.median(figures), min(figures), max(figures))


def ratios(subject: Sequence[float], peer: Sequence[float]) -> list[float]:
    """Subject to peer, window by window: each pair was measured at nearly the same time.

    Raises ValueError where the windows do not pair; a peer that did nothing is infinitely slower.
    """
    if len(subject) != len(peer):
        raise ValueError(f"{len(subject)} windows do not pair with {len(peer)}")
    return [ours / theirs if theirs else math.inf for ours, theirs in zip(subject, peer, strict=True)]


def quantile(figures: Sequence[float], share: float) -> float:
    """The smallest figure that at least `share` (0 to 1) of all do not exceed. Raises ValueError for none."""
    if not figures:
        raise ValueError("no figures")
    ordered = sorted(figures)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares slope of y over x; 0 for fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope
