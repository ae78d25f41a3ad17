"""The floors of the ratios to peers: every planted fault is named."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.bench import __main__ as bench
from tests.bench import floors
from tests.bench.floors import FILE, PEERS, Floors, Ratio, compare, keep, read_floors, read_run, write_floors
from tests.bench.harness import Measured, Window
from tests.bench.report import Result, write

C16: Ratio = ("P1", "c=16", "asyncpg outbox")
C64: Ratio = ("P1", "c=64", "asyncpg outbox")
SEEN: Ratio = ("P6", "p99 at 50%", "outbox, relay every 100 ms")
FLOORS = Floors({C16: 0.5, C64: 1.0, SEEN: 4.0}, {"P1": "before", "P6": "before"})


def row(what: str, peer: str, ours: Sequence[float], theirs: Sequence[float], **more: Any) -> Measured:
    windows = {"daybook": [Window(figure) for figure in ours], peer: [Window(figure) for figure in theirs]}
    return Measured(what, "1/s", windows, **more)


def run_of(folder: Path, *, quick: bool = False, **rows: Sequence[Measured] | str) -> Mapping[str, Any]:
    """A run as it is written and read: the rows of each benchmark, or why it failed."""
    results = [
        Result(
            name,
            "",
            [] if isinstance(some, str) else some,
            "0.10",
            "2.00",
            1.0,
            some if isinstance(some, str) else "",
        )
        for name, some in rows.items()
    ]
    about = {"machine": {"cores": 4}, "effort": {"quick": quick, "windows": 3}, "measured": "2026-11-23"}
    write(folder / "bench.json", about, results)
    return read_run(folder / "bench.json")


def p1(c16: Sequence[float] = (0.5, 0.5, 0.5), c64: Sequence[float] = (1, 1, 1)) -> list[Measured]:
    """Rows with these ratios."""
    return [
        row("c=16", "asyncpg outbox", c16, [1] * len(c16)),
        row("c=64", "asyncpg outbox", c64, [1] * len(c64)),
    ]


def p6(theirs: float = 400) -> list[Measured]:
    name = "p99 at 50%"
    return [row(f"{name}: 300/s", SEEN[2], [100], [theirs], lower_is_better=True, name=name)]


def verdicts(run: Mapping[str, Any], *names: str) -> list[tuple[str, Ratio]]:
    return [(finding.verdict, finding.where) for finding in compare(run, FLOORS, names or ("P1", "P6"))]


def test_a_run_that_keeps_its_ratios_has_no_findings(tmp_path: Path) -> None:
    assert verdicts(run_of(tmp_path, P1=p1(), P6=p6())) == []


@pytest.mark.parametrize(("median", "fell"), [(0.476, False), (0.475, False), (0.474, True), (0.1, True)])
def test_a_median_more_than_five_percent_below_its_floor_fell(
    tmp_path: Path, median: float, fell: bool
) -> None:
    expected = [("fell", C16)] if fell else []
    assert verdicts(run_of(tmp_path, P1=p1(c16=[median] * 3), P6=p6())) == expected


def test_a_ratio_whose_windows_reach_the_floor_is_named_with_its_spread(tmp_path: Path) -> None:
    (finding,) = compare(run_of(tmp_path, P1=p1(c16=[0.4, 0.45, 0.6])), FLOORS, ["P1"])
    assert str(finding) == "fell    P1 c=16, asyncpg outbox: 0.45 (0.40 – 0.60), floor 0.50: −10%"


def test_a_time_fell_when_it_became_longer(tmp_path: Path) -> None:
    assert verdicts(run_of(tmp_path, P1=p1(), P6=p6(theirs=370))) == [("fell", SEEN)]
    assert verdicts(run_of(tmp_path, P1=p1(), P6=p6(theirs=430))) == [("rose", SEEN)]


def test_a_ratio_rose_only_when_every_window_reaches_the_floor(tmp_path: Path) -> None:
    assert verdicts(run_of(tmp_path, P1=p1(c16=[0.5, 0.53, 0.6])), "P1") == [("rose", C16)]
    assert verdicts(run_of(tmp_path, P1=p1(c16=[0.49, 0.53, 0.6])), "P1") == []
    assert verdicts(run_of(tmp_path, P1=p1(c16=[0.5, 0.524, 0.6])), "P1") == []


def test_a_row_a_peer_and_a_benchmark_that_are_missing_are_named(tmp_path: Path) -> None:
    assert verdicts(run_of(tmp_path, P1=p1()[:1], P6=p6())) == [("missing", C64)]
    assert verdicts(run_of(tmp_path, P1=p1())) == [("missing", SEEN)]
    without_peer = dataclasses.replace(p1()[0], windows={"daybook": [Window(1)]})
    assert verdicts(run_of(tmp_path, P1=[without_peer, p1()[1]]), "P1") == [("missing", C16)]


def test_a_missing_ratio_gives_the_reason(tmp_path: Path) -> None:
    failed = compare(run_of(tmp_path, P1=p1(), P6="the stack falls behind"), FLOORS, ["P6"])
    assert [str(finding).partition(", but ")[2] for finding in failed] == ["the stack falls behind"]
    absent = compare(run_of(tmp_path, P1=p1()[:1]), FLOORS, ["P1", "P6"])
    assert [str(finding).partition(", but ")[2] for finding in absent] == [
        "the run has no such figure",
        "P6 was not run",
    ]


def test_a_ratio_without_a_floor_is_new(tmp_path: Path) -> None:
    rows = [*p1(), row("c=99", "asyncpg outbox", [1], [2])]
    assert verdicts(run_of(tmp_path, P1=rows), "P1") == [("new", ("P1", "c=99", "asyncpg outbox"))]


def test_a_contender_that_is_no_peer_has_no_floor(tmp_path: Path) -> None:
    assert verdicts(run_of(tmp_path, P1=[*p1(), row("c=64", "stub 5 ms", [1], [2])][:2]), "P1") == []
    assert floors.ratios_of(run_of(tmp_path, P1=[row("c=64", "stub 5 ms", [1], [2])])) == {}


def test_only_the_named_benchmarks_are_checked(tmp_path: Path) -> None:
    run = run_of(tmp_path, P1=p1(), P6=p6(theirs=1))
    assert verdicts(run, "P1") == []
    assert verdicts(run, "P6") == [("fell", SEEN)]


def test_a_peer_that_did_nothing_is_no_fault(tmp_path: Path) -> None:
    run = run_of(tmp_path, P1=[row("c=16", "asyncpg outbox", [1], [0]), p1()[1]], P6=p6())
    assert floors.ratios_of(run)[C16].median == math.inf
    assert verdicts(run) == [("rose", C16)]


def test_keeping_replaces_the_floors_of_what_was_measured(tmp_path: Path) -> None:
    new = keep(run_of(tmp_path, P1=p1(c16=[0.7])[:1]), FLOORS, ["P1", "P6"])
    assert new.kept == {C16: 0.7, SEEN: 4.0}  # the row that the benchmark no longer has is gone
    assert new.measured == {"P1": "2026-11-23, 4 cores, 3 windows, load averages 0.10 → 2.00", "P6": "before"}


def test_keeping_leaves_what_is_not_named_or_failed(tmp_path: Path) -> None:
    run = run_of(tmp_path, P1=p1(c16=[0.7, 0.7, 0.7]), P6="it failed")
    assert keep(run, FLOORS, ["P6"]) == FLOORS
    with pytest.raises(ValueError, match="a quick run proves nothing"):
        keep(run_of(tmp_path, quick=True, P1=p1()), FLOORS, ["P1"])


def test_the_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    write_floors(FLOORS, tmp_path / "floors.toml")
    assert read_floors(tmp_path / "floors.toml") == FLOORS


def test_the_file_of_the_repository_names_every_peer_of_its_benchmarks(tmp_path: Path) -> None:
    kept = read_floors()
    expected = {(name, peer) for name in kept.measured for peer in PEERS[name]}
    assert {(name, peer) for name, _, peer in kept.kept} == expected
    assert {"P1", "P2", "P4"} <= kept.measured.keys()
    write_floors(kept, tmp_path / "floors.toml")
    assert (tmp_path / "floors.toml").read_text("utf-8") == FILE.read_text("utf-8")  # not edited by hand


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The floors of a repository of its own."""
    file = tmp_path / "floors.toml"
    write_floors(FLOORS, file)
    monkeypatch.setattr(bench, "read_floors", lambda: read_floors(file))
    monkeypatch.setattr(bench, "write_floors", lambda floors: write_floors(floors, file))
    return file


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(bench.app, arguments)
    return result.exit_code, result.output


@pytest.mark.usefixtures("file")
def test_checking_a_saved_run_ends_with_a_code(tmp_path: Path) -> None:
    saved = str(tmp_path / "bench.json")
    run_of(tmp_path, P1=p1(), P6=p6())
    assert call("P1", "P6", "--check", "--from", saved) == (
        0,
        "3 floors of P1, P6: 0 fell, 0 missing, 0 rose, 0 new\n",
    )
    run_of(tmp_path, P1=p1(c64=[0.9]), P6=p6())
    code, output = call("P1", "P6", "--check", "--from", saved)
    assert (code, output.splitlines()[0][:14]) == (1, "fell    P1 c=6")
    assert call("P6", "--check", "--from", saved)[0] == 0
    run_of(tmp_path, P1=p1(c64=[2]))
    code, output = call("P1", "--check", "--from", saved)
    assert code == 0
    assert f"python -m tests.bench P1 --keep --from {saved}" in output
    assert call("P1", "P6", "--check", "--from", saved)[0] == 1  # P6 was not run


def test_keeping_a_saved_run_writes_the_file(tmp_path: Path, file: Path) -> None:
    run_of(tmp_path, P1=p1(c64=[2]))
    assert call("P1", "--keep", "--from", str(tmp_path / "bench.json"))[0] == 0
    assert read_floors(file).kept[C64] == 2


@pytest.mark.usefixtures("file")
def test_what_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    saved = tmp_path / "bench.json"
    saved.write_text(json.dumps({"benchmarks": [{"name": "P1"}]}))
    for arguments, reason in (
        (("P1", "--check", "--from", str(saved)), "is not a run"),
        (("P1", "--from", str(saved)), "--from needs"),
        (("P7", "--check"), "no benchmark with peers P7"),
        (("P1", "--check", "--from", str(tmp_path / "absent")), "does not exist"),
    ):
        code, output = call(*arguments)
        assert code == 2, output
        assert reason in output
