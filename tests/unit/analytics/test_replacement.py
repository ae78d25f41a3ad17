"""An output is replaced completely or not at all; the next job repairs what a killed job left."""

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame

from analytics.evidence.report import Aside, Verdict
from analytics.jobs.audit import write_report
from analytics.jobs.outputs import Occupied, OutputReading, replaced, write
from analytics.marts.catalogue import MARTS


def written(folder: Path, text: str) -> None:
    with replaced(folder) as fresh:
        fresh.mkdir()
        (fresh / "rows").write_text(text)


def test_the_new_output_takes_the_place_of_the_old(tmp_path: Path) -> None:
    for text in ("old", "new"):
        written(tmp_path / "out", text)
        assert (tmp_path / "out/rows").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_audits_report_leaves_what_else_is_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    revenue = [("EUR", "2026-11-02", 2_000_000), ("GBP", "2026-11-02", 3_000_000)]
    write_report(Verdict({}, 2, [], [], Aside(0, 0, [], []), 0, revenue, 1.0), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.html", "audit.json", "mine"]
    page = (tmp_path / "audit.html").read_text()
    assert page.count("<svg") == 2, "money of two currencies is not added"
    assert "2026-11-02: 2.00" in page and "2026-11-02: 3.00" in page


def test_a_mart_does_not_replace_what_is_no_mart(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    reading = OutputReading(ends={})
    with pytest.raises(Occupied, match="--out"):
        write(cast(DataFrame, None), MARTS["orders"], reading, tmp_path)
    assert (tmp_path / "mine").read_text() == "kept"


def test_a_failure_leaves_the_old_output(tmp_path: Path) -> None:
    written(tmp_path / "out", "old")
    with pytest.raises(RuntimeError), replaced(tmp_path / "out") as fresh:
        fresh.mkdir()
        raise RuntimeError
    assert (tmp_path / "out/rows").read_text() == "old"


def test_killed_between_two_renames_the_old_output_comes_back(tmp_path: Path) -> None:
    written(tmp_path / "out", "old")
    (tmp_path / "out").rename(tmp_path / ".out.old")
    with pytest.raises(RuntimeError), replaced(tmp_path / "out"):
        raise RuntimeError
    assert (tmp_path / "out/rows").read_text() == "old"
