"""The report of a lake, without Spark."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analytics.lake.manifest import (
    MANIFEST,
    LakeDamaged,
    Manifest,
    NoLake,
    Part,
    check_part,
    fingerprint,
    lake_report,
    part_folder,
    read_manifest,
    write_manifest,
)
from analytics.log_rule import RecordedDecisions
from contracts.lock import load_lock
from contracts.order.events import OrderPlaced
from tests.unit.analytics.test_jobs import run

V1, V2 = load_lock().ids(OrderPlaced.TYPE)
LAKE = Manifest(
    generation=3,
    checkpoint="checkpoint-1",
    log={"order.events": "an-id"},
    ends={"order.events": {0: 12, 1: 7}},
    contracts=fingerprint(load_lock()),
    parts=(Part("a", 10, {str(V1): 2, "none": 1}), Part("b", 20, {str(V1): 1, str(V2): 5, "999999": 4})),
    retired=("c",),
    decisions=RecordedDecisions(
        {("stock/A", 2, "id", "digest"): "foreign"}, {"order.events": frozenset({1, 3})}
    ),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_manifest(LAKE, tmp_path / MANIFEST)
    assert read_manifest(tmp_path) == LAKE
    assert [file.name for file in tmp_path.iterdir()] == [MANIFEST]


def test_a_lake_of_an_older_form_is_none(tmp_path: Path) -> None:
    write_manifest(LAKE, tmp_path / MANIFEST)
    content = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**content, "form": 1}))
    with pytest.raises(NoLake, match="older form"):
        read_manifest(tmp_path)


def test_the_report_lists_ends_and_schema_versions() -> None:
    report = lake_report(LAKE, Path("lake")).splitlines()
    assert report[0] == "lake: 13 records, 0.0 MB in 2 parts"
    assert report[1:3] == ["complete to order.events/0/12", "complete to order.events/1/7"]
    assert report[3].endswith(", the same as now")
    assert [line.strip() for line in report[4:]] == [
        "1 without a schema id",
        "3 daybook.order.OrderPlaced version 1",
        "4 of the unknown schema id 999999",
        "5 daybook.order.OrderPlaced version 2",
    ]


def test_the_report_shows_that_the_contracts_have_changed() -> None:
    assert "others than now" in lake_report(replace(LAKE, contracts="0" * 64), Path("lake"))


def test_a_part_that_is_cut_is_told(tmp_path: Path) -> None:
    file = part_folder(tmp_path, "a") / "topic=t" / "1.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"0123456789")
    check_part(tmp_path, LAKE.parts[0])
    file.write_bytes(b"012345678")
    with pytest.raises(LakeDamaged, match="9 bytes and had 10"):
        check_part(tmp_path, LAKE.parts[0])


def test_there_is_no_lake_yet(tmp_path: Path) -> None:
    with pytest.raises(NoLake):
        read_manifest(tmp_path)
    refused = run("analytics.jobs.lake", "show", "--lake", str(tmp_path))
    assert refused.returncode == 2
    assert "lake update" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_job_explains_its_steps() -> None:
    shown = run("analytics.jobs.lake", "--help")
    assert shown.returncode == 0
    assert "rebuild" in shown.stdout
    refused = run("analytics.jobs.lake", "fill")
    assert refused.returncode == 2
    assert "starting Spark" not in refused.stderr
