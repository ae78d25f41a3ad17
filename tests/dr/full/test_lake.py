"""A lake is copied from a site that is lost meanwhile, with events that the other site never gets."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from analytics.lake.tables import LOST, RAW, copy_of, read_commits
from infra.lab.drills.drill import Clients, Course, Drill, all_have_outcomes
from infra.lab.drills.judgement import event_epochs
from infra.lab.drills.pair import Kind, Pair, Sides, both_sites, damage
from infra.lab.drills.takeover import NOTICED
from tests.dr.conftest import RunDrill

ALONE, AFTER_SECONDS = (4.0, 8.0), 5.0
IN_THE_UPDATE = (8.0, 25.0)
COMPARED = ("audit_orders", "audit_stock", "orders", "daily_revenue")


def _lose_the_site_in_an_update(course: Course[Sides]) -> None:
    pair, lost, new = course.rig.pair, course.rig.active, course.rig.other
    course.sleep(ALONE)
    pair.cut()
    course.sleep(ALONE)
    course.show("the lake copies what the mirror did not")
    _lake(pair, course.run.folder)
    update = pair.begin("analytics", "lake", "update", "--lake", str(course.run.folder / "lake"))
    course.sleep(IN_THE_UPDATE)
    course.show(f"{lost.name}: dead, in an update of the lake")
    damage(pair, lost, Kind.DEAD, course.random)
    update.wait(120)
    course.report.figures["exit code of the update"] = update.returncode
    pair.reconnect()
    course.sleep(NOTICED)
    course.show(f"failover to {new.name}")
    course.load.switch(new.name)
    pair.fail_over(new)
    time.sleep(AFTER_SECONDS)
    course.show("the lake goes on, of the new site's log")
    _lake(pair, course.run.folder, "--log-replaced")
    time.sleep(AFTER_SECONDS)


def _lake(pair: Pair, folder: Path, *more: str) -> None:
    pair.run("analytics", "lake", "update", "--lake", str(folder / "lake"), *more)


def _tables_equal_a_full_replay(course: Course[Sides], _: None) -> None:
    pair, folder = course.rig.pair, course.run.folder
    course.show("comparing the lake with the log")
    pair.await_rest(course.rig.other)
    _lake(pair, folder)
    pair.environment["DAYBOOK_LAKE"] = str(folder / "lake")
    for source in ("lake", "log"):
        pair.run("analytics", "run", *COMPARED, "--from", source, "--out", str(folder / source))
    for name in COMPARED:
        lake, log = (pq.read_table(folder / source / name) for source in ("lake", "log"))
        course.report.promise(f"{name} of the lake", "equal", f"{log.num_rows} rows", lake.equals(log))


def _what_is_lost_is_in_a_table(course: Course[Sides], _: None) -> None:
    lake = course.run.folder / "lake"
    commits = read_commits(lake)
    former = next(commit for commit in reversed(commits) if commit.log != commits[-1].log)
    raw = DeltaTable(str(copy_of(lake, former.log) / RAW)).to_pyarrow_table(
        columns=["topic", "partition", "offset", "id", "reason"]
    )
    copied = {
        row["id"]
        for row in raw.to_pylist()
        if row["reason"] is None and row["offset"] < former.ends[row["topic"]].get(row["partition"], 0)
    }
    lost = {row["id"] for row in DeltaTable(str(lake / LOST)).to_pyarrow_table().to_pylist()}
    expected = copied - event_epochs(course.rig.other.bootstrap).keys()
    course.report.figures["events that only the lake still has"] = len(lost)
    course.report.none("lost, and not in events_lost", sorted(expected - lost))
    course.report.none("in events_lost, and not lost", sorted(lost - expected))
    course.report.promise("events were lost", "some", str(len(expected)), bool(expected))


@pytest.mark.timeout(1500)
def test_a_lake_outlives_the_site_that_it_was_copied_from(pair: Pair, run_drill: RunDrill) -> None:
    run_drill(
        Drill(
            "lake-failover",
            "Lose the active site in an update of the lake: its tables equal a full replay of the new site's log.",
            rig=both_sites,
            clients=Clients("k"),
            faults=_lose_the_site_in_an_update,
            promises=(all_have_outcomes, _tables_equal_a_full_replay, _what_is_lost_is_in_a_table),
        ),
        pair,
    )
