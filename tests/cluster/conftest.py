"""One cluster for the session, with the shop on it where a test asks; every drill leaves it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from infra.lab.cluster.rig import Rig
from infra.lab.drills.report import DrillReport, as_markdown, write
from tests.ports import free_base

Hold: TypeAlias = Callable[..., DrillReport]


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("cluster"), free_base()) as running:
        yield running


@pytest.fixture
def hold(rig: Rig, tmp_path: Path) -> Hold:
    """Holds a drill on a whole cluster; fails with its report where a promise was not kept. A time is a
    figure of the machine: it is printed."""

    def held(drill: Callable[..., DrillReport], **more: object) -> DrillReport:
        rig.cluster.await_in_sync()
        report = drill(rig, 1, tmp_path, print, **more)
        write(report, tmp_path)
        print(as_markdown(report))
        assert [each for each in report.promises if not each.kept and not each.timed] == [], as_markdown(
            report
        )
        return report

    return held
