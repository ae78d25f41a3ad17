"""One cluster for the session, with the shop on it where a test asks; every drill leaves it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.drill import Drill
from infra.lab.drills.report import DrillReport, as_markdown, write
from tests.ports import free_base

RunDrill: TypeAlias = Callable[..., DrillReport]


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path_factory.mktemp("cluster"), free_base()) as running:
        yield running


@pytest.fixture
def run_drill(rig: ClusterRig, tmp_path: Path) -> RunDrill:
    """Runs a drill on a whole cluster; fails with its report where a promise was not kept. A time is a figure of the
    machine: it is printed."""

    def run(drill: Drill[Any, Any]) -> DrillReport:
        report = drill.run(rig, 1, tmp_path, print)
        write(report, tmp_path)
        print(as_markdown(report))
        broken = [promise for promise in report.promises if not promise.kept and not promise.timed]
        assert broken == [], as_markdown(report)
        return report

    return run
