"""The table of all runs of drills."""

from __future__ import annotations

from pathlib import Path

from infra.lab.drills.report import RPO, RTO, DrillReport, append_run, read_runs


def test_each_run_is_added_once_with_what_it_measured(tmp_path: Path) -> None:
    table = tmp_path / "drills" / "runs.csv"
    assert read_runs(table) == []
    measured = DrillReport(
        "unplanned", 47, "2026-11-23T10:00:00Z", figures={RPO: 0.1234, RTO: 8.0, "other": 1.0}
    )
    not_measured = DrillReport("mirror-lag", 48, "2026-11-30T10:00:00Z")
    not_measured.none("records lost", ["one"])
    append_run(measured, table)
    append_run(not_measured, table)
    assert read_runs(table) == [
        ["2026-11-23T10:00:00Z", "unplanned", "47", "yes", "0.12", "8.00"],
        ["2026-11-30T10:00:00Z", "mirror-lag", "48", "no", "", ""],
    ]
