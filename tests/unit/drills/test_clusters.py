"""Two clusters under drill: which nodes die, and when. No process is started here."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from infra.base.journal import StackJournal
from infra.base.settings import CLUSTER, StackSettings
from infra.base.waiting import wait_until
from infra.cli.drill import DRILLS
from infra.lab.drills.clusters import CLUSTERS_PLANNED, Weakening
from infra.lab.drills.drill import DrillFailed
from infra.lab.drills.switchover import PLANNED
from infra.stack.embedded.kafka import kept_cluster_id
from infra.stack.shop import MIRROR
from infra.stack.site import Site


class RecordingPlatform:
    """Records what is done to a site's processes."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.started: list[str] = []

    def kill(self, site: Site, name: str) -> None:
        assert name in site.journal.held(), "it would be started again"
        self.killed.append(name)

    def stop(self, site: Site, *names: str) -> None:
        for name in names:
            site.journal.keep_down(name)

    def start(self, _: Site, *names: str) -> None:
        assert names, "without a name, the whole site is started"
        self.started += names


def course_on(home: Path, platform: RecordingPlatform) -> Any:
    pair = SimpleNamespace(platform=platform)
    rig = SimpleNamespace(other=Site(StackSettings(home=home)), pair=pair)
    return SimpleNamespace(rig=rig, random=Random(7))


def test_nodes_die_when_the_mirror_is_stopped_and_not_before(tmp_path: Path) -> None:
    kept_cluster_id(tmp_path)
    platform, journal = RecordingPlatform(), StackJournal(tmp_path)
    with Weakening(course_on(tmp_path, platform)) as weakening:
        assert platform.killed == []
        journal.keep_down(MIRROR)
        wait_until(lambda: len(journal.held()) == 3, "both are kept down", 5)
        assert platform.started == []
    broker, controller = weakening.killed
    assert (broker.split("-")[0], controller.split("-")[0]) == ("broker", "controller")
    assert platform.killed == platform.started == weakening.killed


def test_a_mirror_that_was_down_from_the_beginning_is_no_switch(tmp_path: Path) -> None:
    kept_cluster_id(tmp_path)
    platform = RecordingPlatform()
    StackJournal(tmp_path).keep_down(MIRROR)
    with Weakening(course_on(tmp_path, platform)) as weakening:
        pass
    assert platform.killed == weakening.killed == []


def test_sites_of_one_broker_are_refused(tmp_path: Path) -> None:
    assert CLUSTERS_PLANNED.faults is not None
    with pytest.raises(DrillFailed, match="--sites 2 --brokers 3"):
        CLUSTERS_PLANNED.faults(course_on(tmp_path, RecordingPlatform()))


def test_the_campaign_has_a_switch_of_each_kind_between_clusters() -> None:
    names = [drill.name for drill in DRILLS if drill.brokers == CLUSTER]
    assert names == ["clusters-planned", "clusters-unplanned", "clusters-failback"]
    assert PLANNED.brokers == 1
