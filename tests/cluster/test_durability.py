"""What the start of a cluster refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.base.settings import CLUSTER
from infra.lab.drills.cluster.curves import chart
from infra.log.topics import catalogue
from infra.stack.embedded.cluster import Node


def test_every_topic_of_the_catalogue_has_three_replicas_of_which_two_must_answer() -> None:
    topics = catalogue(CLUSTER).values()
    assert {(topic.replication, topic.min_in_sync) for topic in topics} == {(3, 2)}
    assert {topic.config()["unclean.leader.election.enable"] for topic in topics} == {"false"}


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_min_isr_stands_in_every_file(role: str) -> None:
    node = Node(1, role, Path("x"), 1, "host:2", "id")  # type: ignore[arg-type]
    properties = node.properties()
    assert properties["min.insync.replicas"] == "2"
    assert properties["unclean.leader.election.enable"] == "false"
    assert properties["process.roles"] == role


def test_a_nodes_own_setting_wins() -> None:
    node = Node(1, "broker", Path("x"), 1, "host:2", "id", own={"group.initial.rebalance.delay.ms": "3000"})
    assert node.properties()["group.initial.rebalance.delay.ms"] == "3000"


def test_a_chart_places_powers_of_ten_evenly() -> None:
    picture = chart("t", "x", "y", {"a": [(1, 1), (10, 10), (100, 100)]})
    (line,) = re.findall(r'points="([^"]+)"', picture)
    (x0, y0), (x1, y1), (x2, y2) = (tuple(map(float, point.split(","))) for point in line.split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert x2 > x0
    assert y2 < y0
