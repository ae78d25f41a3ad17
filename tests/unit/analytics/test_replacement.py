"""An output is replaced completely or not at all; the next job repairs what a killed job left."""

from pathlib import Path

import pytest

from analytics.jobs.outputs import replaced


def written(folder: Path, text: str) -> None:
    with replaced(folder) as fresh:
        fresh.mkdir()
        (fresh / "rows").write_text(text)


def test_the_new_output_takes_the_place_of_the_old(tmp_path: Path) -> None:
    for text in ("old", "new"):
        written(tmp_path / "out", text)
        assert (tmp_path / "out/rows").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


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
