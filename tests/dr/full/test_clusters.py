"""Two sites that are clusters: every switch survives the loss of a broker and of a controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.base.settings import CLUSTER, StackSettings
from infra.lab.drills.clusters import CLUSTERS_FAILBACK, CLUSTERS_PLANNED, CLUSTERS_UNPLANNED
from infra.lab.drills.pair import Pair
from infra.log.topics import catalogue, drift
from tests.dr.conftest import RunDrill
from tests.ports import free_base


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(StackSettings(home=tmp_path_factory.mktemp("clusters") / "home", port_base=free_base()))
    try:
        pair.start(CLUSTER)
        yield pair
    finally:
        pair.run("down")


@pytest.mark.timeout(3600)
def test_a_switchover_a_takeover_and_a_failback(clusters: Pair, run_drill: RunDrill) -> None:
    """In this order: the failback needs the site that the takeover has lost."""
    for site in clusters.sites.values():
        assert drift(site.bootstrap, catalogue(CLUSTER)) == []
    for drill in (CLUSTERS_PLANNED, CLUSTERS_UNPLANNED, CLUSTERS_FAILBACK):
        run_drill(drill, clusters)
