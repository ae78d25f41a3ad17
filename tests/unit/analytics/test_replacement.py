"""An output replaces an earlier one, and nothing else."""

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame

from analytics.evidence.report import Aside, Verdict
from analytics.jobs.audit import write_report
from analytics.jobs.outputs import Occupied, OutputReading, write
from analytics.marts.catalogue import MARTS


def test_the_audits_report_leaves_what_else_is_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    revenue = [("EUR", "2026-11-02", 2_000_000), ("GBP", "2026-11-02", 3_000_000)]
    write_report(Verdict({}, 2, [], [], Aside(0, 0, [], []), 0, revenue, 1.0), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.html", "audit.json", "mine"]
    page = (tmp_path / "audit.html").read_text()
    assert page.count("<svg") == 2, "money of two currencies is not added"
    assert "2026-11-02: 2.00" in page and "2026-11-02: 3.00" in page


def test_a_mart_does_not_replace_what_is_no_mart(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "mine").write_text("kept")
    with pytest.raises(Occupied, match="--out"):
        write(cast(DataFrame, None), MARTS["orders"], OutputReading(ends={}), tmp_path)
    assert (tmp_path / "orders" / "mine").read_text() == "kept"
