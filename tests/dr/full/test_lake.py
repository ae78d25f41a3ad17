"""A lake whose log is lost in the middle of a copy: it continues with the log of the site that took over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.dataset as ds
import pytest

from analytics.delta import table
from analytics.envelope import EVENT_TOPICS, POSITION, event_types
from analytics.lake.tables import (
    LOST,
    RAW,
    Commit,
    copy_of,
    last_batch,
    name_of_log,
    read_commits,
    table_name,
)
from analytics.offsets import topic_ids
from contracts.lock import load_lock
from infra.base.waiting import wait_until
from infra.lab.drills.drill import Clients, Course, Drill, DrillFailed, all_have_outcomes
from infra.lab.drills.pair import Kind, Pair, Sides, both_sites, damage
from infra.lab.drills.switchover import FAILBACK
from infra.stack.site import Site
from services.kernel.log.reader import partitions_of, read_to_end
from tests.dr.conftest import RunDrill

BEFORE, MORE = (5.0, 10.0), (3.0, 6.0)
COPY_SECONDS, END_SECONDS = 300.0, 300.0
RATE = 4.0  # Spark works beside two whole sites
UPDATE, REPLACED = ("analytics", "lake", "update"), "--log-replaced"

Row: TypeAlias = Mapping[str, Any]
Position: TypeAlias = tuple[str, int, int]

pytestmark = pytest.mark.timeout(2400)


def test_a_lake_outlives_its_log(tmp_path: Path, pair: Pair, run_drill: RunDrill) -> None:
    lake = tmp_path / "lake"
    run_drill(lake_continues(lake), pair)
    run_drill(FAILBACK, pair)
    active, _, _ = pair.roles()
    pair.run("--site", active.name, *UPDATE, "--lake", str(lake), REPLACED)
    assert differences(lake, active) == Counter()


def lake_continues(lake: Path) -> Drill[Sides, Commit]:
    def lose_the_log(course: Course[Sides]) -> Commit:
        """The last commit of the log that is lost."""
        pair, lost, survivor = course.rig.pair, course.rig.active, course.rig.other
        course.sleep(BEFORE)
        course.show(f"the lake copies {lost.name}")
        pair.run("--site", lost.name, *UPDATE, "--lake", str(lake))
        commit = read_commits(lake)[-1]
        course.sleep(MORE)
        course.show("a second update begins")
        dying = pair.begin("--site", lost.name, *UPDATE, "--lake", str(lake))
        wait_until(
            lambda: last_batch(copy_of(lake, commit.log), RAW) > commit.batch,
            "the update has appended a batch",
            COPY_SECONDS,
            error=DrillFailed,
        )
        course.show(f"{lost.name} dies, before the batch is committed")
        damage(pair, lost, Kind.DEAD, course.random)
        course.load.switch(survivor.name)
        pair.fail_over(survivor)
        code = dying.wait(END_SECONDS)
        course.report.promise("exit code of the update that lost its log", "2", str(code), code == 2)
        course.report.none("commits of that update", [str(commit) for commit in read_commits(lake)[1:]])
        course.show(f"the lake copies {survivor.name}")
        pair.run("--site", survivor.name, *UPDATE, "--lake", str(lake), REPLACED)
        return commit

    def has_what_the_log_has(course: Course[Sides], former: Commit) -> None:
        commit = read_commits(lake)[-1]
        course.report.figures["records in the lake"] = count = len(raw_rows(lake, commit))
        course.report.promise("records in the lake, at least", "1", str(count), count > 0)
        course.report.none(
            "records that log and lake do not share",
            [str(position) for position in differences(lake, course.rig.other).elements()],
        )
        there, here = (
            {identity_of(row) for row in raw_rows(lake, of) if row["reason"] is None}
            for of in (former, commit)
        )
        delta = table(lake, LOST)
        rows = delta.to_pyarrow_table().to_pylist() if delta is not None else []
        listed = Counter(map(identity_of, rows))
        course.report.figures["events in events_lost"] = listed.total()
        course.report.none("lost events that events_lost lacks", sorted(there - here - set(listed)))
        course.report.none("events in events_lost that the log has", sorted(set(listed) - (there - here)))
        course.report.none(
            "events twice in events_lost", [name for name, count in listed.items() if count > 1]
        )

    return Drill(
        "lake-continues",
        "The active site is lost while the lake copies it; the lake continues with the other site's log.",
        rig=both_sites,
        clients=Clients("l", rate=RATE),
        faults=lose_the_log,
        promises=(all_have_outcomes, has_what_the_log_has),
    )


def differences(lake: Path, site: Site) -> Counter[Position]:
    """The records that the site's log and `events_raw` do not share byte by byte, or a table of an event type has not
    as often as `events_raw`."""
    commit = read_commits(lake)[-1]
    assert name_of_log(commit.log) == name_of_log(topic_ids(site.bootstrap, EVENT_TOPICS))
    in_log = Counter(
        (record.topic(), record.partition(), record.offset(), record.key(), record.value())
        for topic in EVENT_TOPICS
        for record in read_to_end(
            site.bootstrap, topic, dict.fromkeys(partitions_of(site.bootstrap, topic), 0)
        )
        if record.offset() < commit.ends[topic][record.partition()]
    )
    rows = raw_rows(lake, commit)
    in_lake = Counter((*position_of(row), row["key"], row["value"]) for row in rows)
    differing = Counter(key[:3] for key in ((in_log - in_lake) + (in_lake - in_log)).elements())
    by_type = Counter((row["record"], position_of(row)) for row in rows if row["reason"] is None)
    typed = Counter[tuple[str, Position]]()
    for name in map(table_name, event_types(load_lock())):
        typed.update((name, position_of(row)) for row in rows_of(lake, commit, name, POSITION))
    differing.update(position for _, position in ((by_type - typed) + (typed - by_type)).elements())
    return differing


def raw_rows(lake: Path, commit: Commit) -> list[Row]:
    columns = (*POSITION, "key", "value", "record", "reason", "entity", "version", "id")
    return rows_of(lake, commit, RAW, columns)


def rows_of(lake: Path, commit: Commit, name: str, columns: Sequence[str]) -> list[Row]:
    """The rows of a table before the ends of the commit."""
    delta = table(copy_of(lake, commit.log), name)
    if delta is None:
        return []
    dataset: ds.Dataset = delta.to_pyarrow_dataset()
    rows: list[Row] = dataset.to_table(list(columns)).to_pylist()
    return [row for row in rows if row["offset"] < commit.ends[row["topic"]][row["partition"]]]


def position_of(row: Row) -> Position:
    return row["topic"], row["partition"], row["offset"]


def identity_of(row: Row) -> str:
    return "{topic} {entity} {version} {id}".format_map(row)
