"""How `pytest -n` shares the tests among its processes.

Each process has its own broker, PostgreSQL and Spark session, started when the first test asks for them. The
tests of a module run in one process, because many modules start processes of their own. So do the modules of
a group: they share something that takes longer to start than most of their tests. Long groups start first, so
that short modules fill the processes evenly at the end.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# A further process costs up to 2 GB and saves nothing: the run takes as long as its longest group.
MOST_PROCESSES = 6
# What shares something costly, by the beginning of its path: one running shop, or two brokers.
GROUPS = ("tests/e2e/", "tests/integration/patterns/")
# In this order; everything else follows as it was collected.
LONGEST_FIRST = (
    "tests/e2e/",
    "tests/integration/analytics/",
    "tests/unit/analytics/",
    "tests/integration/kernel/",
    "tests/integration/sites/",
    "tests/integration/",
)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Hands out whole groups, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """The tests of one group run in one process, one after the other."""
    module = nodeid.partition("::")[0]
    return next((together for together in GROUPS if module.startswith(together)), module)


def rank(nodeid: str) -> int:
    ranks = (number for number, start in enumerate(LONGEST_FIRST) if nodeid.startswith(start))
    return next(ranks, len(LONGEST_FIRST))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto` is one process per core that this process may use; pytest-xdist counts the machine's."""
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long groups first. In one process alone the order of collection stays: short tests fail early."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid))
