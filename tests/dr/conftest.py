"""Two whole sites for the drills. They are shared as long as each drill leaves a whole pair behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pytest

from infra.base.settings import StackSettings
from infra.lab.drills.drill import Drill, DrillFailed
from infra.lab.drills.pair import Kind, Pair, copying, damage
from infra.lab.drills.report import DrillReport, as_markdown, write
from tests.ports import free_base

# A time is a figure of the machine: the whole campaign insists on it, the small one prints it.
STRICT = os.environ.get("DAYBOOK_DRILL_STRICT") == "1"
SEED = int(os.environ.get("DAYBOOK_DRILL_SEED", "1"))
# Commands per second of the small campaign, where processes start beside two whole sites; the whole one sends more.
RATE = 20.0

RunDrill: TypeAlias = Callable[..., DrillReport]


@pytest.fixture(scope="session")
def own_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The pair as the last drill left it, perhaps with one site dead."""
    pair = Pair(StackSettings(home=tmp_path_factory.mktemp("pair") / "home", port_base=free_base()))
    try:
        pair.start()
        yield pair
    finally:
        pair.run("down")


@pytest.fixture
def pair(own_pair: Pair) -> Pair:
    """A whole pair: one active, one passive, a mirror between them. Started anew where it is none."""
    if not whole(own_pair):
        own_pair.start()
    return own_pair


@pytest.fixture
def pair_after_loss(own_pair: Pair) -> Pair:
    """A pair of which one site is lost; it is made so where it is whole."""
    if whole(own_pair):
        active, passive, _ = own_pair.roles()
        damage(own_pair, active, Kind.DEAD, Random(SEED))
        own_pair.fail_over(passive)
    return own_pair


@pytest.fixture
def run_drill(tmp_path: Path) -> RunDrill:
    """Runs a drill with the campaign's seed; fails with its report where a promise was not kept."""

    def run(drill: Drill[Any, Any], pair: Pair, number: int = 0) -> DrillReport:
        if drill.clients is not None and not STRICT:
            drill = replace(drill, clients=replace(drill.clients, rate=min(RATE, drill.clients.rate)))
        report = drill.run(pair, SEED + number, tmp_path, print)
        write(report, tmp_path)
        print(f"\n{report.drill}, seed {report.seed}")
        for promise in report.promises:
            print(f"  {promise.what}: {promise.promised}, {promise.measured}")
        broken = [
            promise for promise in report.promises if not promise.kept and (STRICT or not promise.timed)
        ]
        assert broken == [], as_markdown(report)
        return report

    return run


def whole(pair: Pair) -> bool:
    if not all(map(pair.platform.up, pair.sites.values())):
        return False  # its roles are awaited for a minute
    try:
        _, passive, _ = pair.roles()
    except DrillFailed:
        return False
    return copying(passive)
