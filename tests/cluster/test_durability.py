"""What the start of a cluster refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.base.settings import CLUSTER
from infra.lab.drills.cluster.curves import draw_lines
from infra.log.topics import catalogue
from infra.stack.embedded.kafka import Node


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


def test_a_chart_names_its_axes_and_lines(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    draw_lines(picture, "title", "across", "up", {"one line": [(1, 1), (10, 10), (100, 100)]})
    drawn = picture.read_text("utf-8")
    assert all(f"<!-- {text} -->" in drawn for text in ("title", "across", "up", "one line"))
