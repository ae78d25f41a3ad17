"""A report that names what was not lost fails the drill."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.dr.losses import NONE_LOST, CutConversation, Report, TornTransaction
from infra.dr.old_log import UnprovenPart
from infra.lab.drills.drill import DrillFailed
from infra.lab.drills.judgement import check_nothing_lost
from infra.lab.drills.pair import Pair
from infra.lab.drills.report import DrillReport
from tests.unit.sites.test_loss_export import AT, loss


def checked(folder: Path, epoch: int = 2, **changes: Any) -> DrillReport:
    """The report of a drill whose `failover report` says this."""
    about = {"torn_transactions": (), "conversations": (), "verdict": NONE_LOST, "losses": (), **changes}
    lost = Report("home", "away", AT, parted=(), continued={}, **about)
    pair = SimpleNamespace(roles=lambda: (None, None, epoch), losses=lambda _: lost)
    report = DrillReport("planned", 1, AT)
    check_nothing_lost(report, cast(Pair, pair), folder)
    return report


def test_a_proof_that_nothing_was_lost_passes(tmp_path: Path) -> None:
    report = checked(tmp_path)
    assert report.passed and len(report.promises) == 2


@pytest.mark.parametrize(
    ("printed", "kept"), [("daybook: there was no failover: nothing can be missing", True), ("1 lost", False)]
)
def test_before_the_first_switch_the_report_is_refused(tmp_path: Path, printed: str, kept: bool) -> None:
    def run(*_: str) -> str:
        raise DrillFailed(f"ended with 1:\n{printed}")

    report = DrillReport("unplanned", 1, AT)
    pair = SimpleNamespace(roles=lambda: (None, None, 1), run=run)
    check_nothing_lost(report, cast(Pair, pair), tmp_path)
    assert report.passed == kept


@pytest.mark.parametrize(
    "named",
    [
        {"losses": (loss(1, "o-1"),)},
        {"losses": (loss(1, "o-1", acknowledged=False),)},
        {"torn_transactions": (TornTransaction("t", "order.events", 2, 1),)},
        {"conversations": (CutConversation("o-1", "order lost", (), ()),)},
        {"unproven": (UnprovenPart("order.events", 0, 1, 2, "gone"),)},
        {"verdict": "listed"},
    ],
    ids=lambda named: next(iter(named)),
)
def test_whatever_it_names_fails_the_drill(tmp_path: Path, named: dict[str, Any]) -> None:
    assert not checked(tmp_path, **named).passed
