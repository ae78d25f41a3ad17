"""P14: how long other clients wait beside one greedy customer, and beside 5,000 hostile connections.

A whole shop, with tokens. The others send 60 requests per second; the customer sends 600.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from tests.bench.generator import Loaded
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.e2e.shop import Shop, opened
from tests.hostile.beside import crowd, greedy, others

# API, what the others ask for, and what the customer does.
WAYS = (("order-api", "small_order", "own_order"), ("query-api", "page", "page"))
GREEDY, HOSTILE, ALONE = "beside a greedy customer", "beside a hostile crowd", "alone"
MOST_TIMES_LONGER = 2.0


def run(effort: Effort, say: Say) -> list[Measured]:
    with tempfile.TemporaryDirectory(prefix="daybook-bench-") as folder, opened(Path(folder)) as shop:
        return [row for way in WAYS for row in _rows(shop, *way, effort, say)]


def _rows(shop: Shop, api: str, kind: str, own: str, effort: Effort, say: Say) -> list[Measured]:
    count = 0

    def name() -> str:
        """New for each window, so that no request repeats one of an earlier window."""
        nonlocal count
        count += 1
        return f"{kind}-{count}"

    def alone() -> Window:
        return _window(others(shop, api, kind, name()))

    def beside_customer() -> Window:
        with greedy(shop, api, own, f"{name()}-greedy"):
            return _window(others(shop, api, kind, name()))

    def beside_crowd() -> Window:
        with crowd(shop.settings.port(api), Counter()):
            return _window(others(shop, api, kind, name()))

    contenders = [
        Contender(GREEDY, beside_customer),
        Contender(HOSTILE, beside_crowd),
        Contender(ALONE, alone),
    ]
    windows = interleave(contenders, effort.windows, say)
    rows = []
    for ours in (GREEDY, HOSTILE):
        row = Measured(
            f"p99 of {api}", "ms", {ours: windows[ours], ALONE: windows[ALONE]}, lower_is_better=True
        )
        row.reach("≤2 times as long as alone", row.ratio(ALONE).median, MOST_TIMES_LONGER, at_least=False)
        rows.append(row)
    return rows


def _window(loaded: Loaded) -> Window:
    if loaded.refused:
        raise Unmeasurable(f"{loaded.refused} requests of others were refused")
    return Window(loaded.p99, {"p50": loaded.p50})
