"""Two sites whose processes have a lease: cut off from each other, only one of them acknowledges."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.base.settings import StackSettings
from infra.lab.drills.pair import Pair
from infra.lab.drills.takeover import SPLIT_BRAIN
from tests.dr.conftest import RunDrill
from tests.ports import free_base


@pytest.mark.timeout(1200)
def test_a_site_that_is_cut_off_and_replaced_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_drill: RunDrill
) -> None:
    monkeypatch.setenv("DAYBOOK_LEASE_SECONDS", "5")
    pair = Pair(StackSettings(home=tmp_path / "home", port_base=free_base()))
    try:
        pair.start()
        report = run_drill(SPLIT_BRAIN, pair)
    finally:
        pair.run("down")
    assert any("lease had ended" in promise.what for promise in report.promises)
