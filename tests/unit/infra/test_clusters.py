"""A site that is a cluster: its names, ports, addresses, rows and settings. No process is started here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from contracts.kafka_address import bootstrap_of
from infra.base.settings import StackSettings
from infra.cli import in_containers
from infra.cli.lifecycle import _clusters, app
from infra.log.topics import catalogue
from infra.stack.embedded.kafka import Node, first_voters, kept_cluster_id, site_nodes
from infra.stack.embedded.stack import members, mirror_place
from infra.stack.mirror_settings import mirror_properties
from infra.stack.security import prepare_identities
from infra.stack.site import Site, peer, sites_of


@pytest.fixture
def home(tmp_path: Path) -> StackSettings:
    """Of a stack with two sites, which are clusters."""
    kept_cluster_id(tmp_path)
    kept_cluster_id(tmp_path / "away")
    settings = StackSettings(home=tmp_path, port_base=27400)
    for site in sites_of(settings).values():
        prepare_identities(site.settings)
    return settings


def test_a_site_is_a_cluster_from_its_first_start_on(tmp_path: Path) -> None:
    settings = StackSettings(home=tmp_path, port_base=27400)
    assert (settings.brokers, bootstrap_of(settings.kafka)) == (1, "127.0.0.1:27492")
    first = kept_cluster_id(tmp_path)
    assert kept_cluster_id(tmp_path) == first
    assert settings.brokers == 3
    assert bootstrap_of(settings.kafka) == "127.0.0.1:27492,127.0.0.1:27485,127.0.0.1:27486"
    assert bootstrap_of(Site(settings).link) == "127.0.0.1:27495,127.0.0.1:27458,127.0.0.1:27459"


def test_controllers_stop_after_the_brokers(home: StackSettings) -> None:
    rows = [[member.name for member in row] for row in members(home)]
    assert rows[0] == ["controller", "controller-1", "controller-2"]
    assert rows[1] == ["broker", "broker-1", "broker-2", "postgres", "link"]
    only = [[member.name for member in row] for row in members(home, ["broker"])]
    assert only == [rows[0], ["broker", "broker-1", "broker-2"]]


def test_no_two_nodes_share_a_port(home: StackSettings) -> None:
    ports = [
        port
        for site in sites_of(home).values()
        for row in members(site.settings)
        for member in row
        for port in member.ports
    ]
    assert len(ports) == len(set(ports))


def test_every_node_of_a_site_has_the_same_quorum_and_a_rack(home: StackSettings) -> None:
    controllers, brokers = site_nodes(home, linked=True)
    assert {node.cluster_id for node in (*controllers, *brokers)} == {kept_cluster_id(home.home)}
    (voters,) = {node.voters for node in controllers}
    assert [voter.partition("@")[0] for voter in voters.split(",")] == ["10", "11", "12"]
    racks = [node.properties()["broker.rack"] for node in brokers]
    assert racks == ["rack-0", "rack-1", "rack-2"]
    for node in (*controllers, *brokers):
        assert node.properties()["min.insync.replicas"] == "2"


def test_the_other_site_reaches_each_broker_through_the_link(home: StackSettings) -> None:
    _, brokers = site_nodes(home, linked=True)
    advertised = [node.properties()["advertised.listeners"].partition(",PEER://")[2] for node in brokers]
    assert ",".join(advertised) == bootstrap_of(Site(home).link)
    (link,) = [member for row in members(home) for member in row if member.name == "link"]
    ways = link.prepare().command[-3:]
    behind = [node.properties()["listeners"].partition(",PEER://")[2] for node in brokers]
    assert [way.partition("=")[2] for way in ways] == behind
    _, alone = site_nodes(home, linked=False)
    assert all("PEER" not in node.properties()["listeners"] for node in alone)


def test_the_mirror_knows_all_brokers_and_keeps_as_many_replicas_as_they_do(home: StackSettings) -> None:
    other = peer(home)
    assert other is not None
    properties = mirror_properties(mirror_place(home, other))
    assert f"away.bootstrap.servers = {bootstrap_of(other.link)}\n" in properties
    assert f"home.bootstrap.servers = {bootstrap_of(home.kafka)}\n" in properties
    factors = [line for line in properties.splitlines() if "replication.factor" in line]
    assert {line.partition(" = ")[2] for line in factors} == {"-1"}


def test_the_catalogue_of_a_cluster_keeps_three_replicas() -> None:
    topics = catalogue(3)
    assert {(topic.replication, topic.min_in_sync) for topic in topics.values()} == {(3, 2)}
    assert {(topic.replication, topic.min_in_sync) for topic in catalogue().values()} == {(1, 1)}
    assert topics.keys() == catalogue().keys()


def test_the_first_voters_differ_between_clusters() -> None:
    addresses = {10: "127.0.0.1:1", 11: "127.0.0.1:2"}
    first = first_voters("A" * 22, addresses)
    assert first != first_voters("B" * 22, addresses)
    assert first == first_voters("A" * 22, addresses)


def test_a_nodes_own_setting_wins(tmp_path: Path) -> None:
    node = Node(1, "broker", tmp_path / "broker-1", 1, "host:2", "id", own={"min.insync.replicas": "1"})
    assert node.name == "broker-1"
    assert node.properties()["min.insync.replicas"] == "1"


def test_a_log_of_one_broker_stays_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = StackSettings(home=tmp_path)
    (tmp_path / "broker").mkdir()
    _clusters(settings, 1)
    with pytest.raises(typer.Exit):
        _clusters(settings, 3)
    assert "home has a log of one broker: `./daybook clean`" in capsys.readouterr().err
    assert settings.brokers == 1


def test_a_shop_in_containers_keeps_its_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = StackSettings(home=tmp_path, stack="compose")
    (tmp_path / "containers").mkdir()
    started = list[int]()
    monkeypatch.setattr(in_containers, "compose", lambda settings, *_: started.append(settings.brokers))
    monkeypatch.setattr(in_containers, "containers", lambda _: [])
    monkeypatch.setattr(in_containers, "await_fine", lambda *_: None)
    monkeypatch.setattr(in_containers, "active_services", lambda _: set())
    with pytest.raises(typer.Exit):
        in_containers.up(settings, 2, 3, insecure=False)
    assert "`./daybook --stack compose clean` removes it" in capsys.readouterr().err
    assert (started, settings.brokers) == ([], 1)
    in_containers.up(settings, 2, 1, insecure=False)
    new = StackSettings(home=tmp_path / "new", stack="compose")
    (new.home / "drills").mkdir(parents=True)
    in_containers.up(new, 2, 3, insecure=False)
    in_containers.up(new, 1, 1, insecure=False)
    assert started == [1, 3, 3]


def test_a_second_site_becomes_what_the_first_one_is(tmp_path: Path) -> None:
    settings = StackSettings(home=tmp_path)
    _clusters(settings, 3)
    (tmp_path / "broker").mkdir()
    (tmp_path / "away").mkdir()
    _clusters(settings, 1)
    assert [site.settings.brokers for site in sites_of(settings).values()] == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "text"), [(["--brokers", "2"], "1 or 3"), (["--brokers", "4"], "1<=x<=3")]
)
def test_two_or_four_brokers_are_refused(tmp_path: Path, arguments: list[str], text: str) -> None:
    environment = {**os.environ, "DAYBOOK_HOME": str(tmp_path / "home")}
    ended = CliRunner().invoke(app, ["up", *arguments], env=environment)
    assert ended.exit_code == 2
    assert text in ended.output
