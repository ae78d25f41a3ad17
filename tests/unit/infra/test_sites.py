"""Names and places of sites, held members, the link's file, the mirror's properties: no process here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError

from contracts.kafka_address import bootstrap_of, identity_file
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.log.topics import mirrored_topics
from infra.stack.embedded.router import router_member
from infra.stack.embedded.stack import members
from infra.stack.link import LinkState, read_link, set_links
from infra.stack.mirror_settings import MirrorPlace, mirror_properties
from infra.stack.shop import NAMES, SITE_NAMES
from infra.stack.site import Site, away_settings, home_settings, peer, sites_of

PLACE = MirrorPlace(Path("mirror"), 15, "home", "away", "127.0.0.1:95", "127.0.0.1:292", ["a.b", "c.d"])


def two(tmp_path: Path) -> StackSettings:
    settings = StackSettings(home=tmp_path, port_base=20_000)
    away_settings(settings).home.mkdir()
    return settings


def test_a_second_site_is_there_once_it_has_a_folder(tmp_path: Path) -> None:
    alone = StackSettings(home=tmp_path, port_base=20_000)
    assert list(sites_of(alone)) == ["home"]
    assert peer(alone) is None
    home = two(tmp_path)
    away = sites_of(home)["away"].settings
    assert (away.home, away.port_base, away.site) == (tmp_path / "away", 20_200, "away")
    assert home_settings(away) == home_settings(home) == home
    assert sites_of(away) == sites_of(home)
    other = peer(away)
    assert other is not None
    assert (other.name, bootstrap_of(other.link)) == ("home", "127.0.0.1:20095")
    assert identity_file(other.link) == tmp_path / "kafka-identities" / "admin.json"


def test_a_second_site_needs_room_for_its_ports(tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        away_settings(StackSettings(home=tmp_path, port_base=65_400))


def test_two_sites_share_no_port_and_have_three_more_members(tmp_path: Path) -> None:
    home = two(tmp_path)

    def named(settings: StackSettings) -> dict[str, tuple[int, ...]]:
        return {member.name: member.ports for row in members(settings) for member in row}

    here, there = named(home), named(away_settings(home))
    assert set(here) == set(there) == {*NAMES, *SITE_NAMES}
    ports = [port for site_ports in (here, there) for some in site_ports.values() for port in some]
    assert len(ports) == len(set(ports))


def test_a_write_api_knows_the_same_api_at_the_other_site(tmp_path: Path) -> None:
    def peer_urls(settings: StackSettings, variable: str = "DAYBOOK_PEER_URL") -> dict[str, str | None]:
        started = {member.name: member for row in members(settings) for member in row}
        names = ("order-api", "inventory-api", "query-api")
        return {name: started[name].prepare().environment.get(variable) for name in names}

    assert peer_urls(StackSettings(home=tmp_path, port_base=20_000)) == dict.fromkeys(
        ("order-api", "inventory-api", "query-api")
    )
    home = two(tmp_path)
    assert peer_urls(home) == {
        "order-api": "http://127.0.0.1:20201",
        "inventory-api": "http://127.0.0.1:20202",
        "query-api": None,
    }
    assert peer_urls(away_settings(home))["order-api"] == "http://127.0.0.1:20001"
    link = f"sasl_ssl://127.0.0.1:{20_295}?identity={tmp_path / 'kafka-identities'}"
    assert peer_urls(home, "DAYBOOK_PEER_KAFKA") == {
        "order-api": f"{link}/order-api.json",
        "inventory-api": f"{link}/inventory-api.json",
        "query-api": None,
    }


def test_the_router_knows_both_sites_and_shares_no_port_with_them(tmp_path: Path) -> None:
    home = two(tmp_path)
    router = router_member(home)
    environment = router.prepare().environment
    assert msgspec.json.decode(environment["DAYBOOK_ROUTER_SITES"]) == {
        "home": home.kafka_as("router"),
        "away": away_settings(home).kafka_as("router"),
    }
    routes = msgspec.json.decode(environment["DAYBOOK_ROUTER_ROUTES"])
    assert routes["query-api"] == {
        "port": 20_019,
        "targets": {"home": "127.0.0.1:20003", "away": "127.0.0.1:20203"},
        "reads": True,
    }
    assert [route["reads"] for route in routes.values()] == [False, False, True]
    sites = [member.ports for site in (home, away_settings(home)) for row in members(site) for member in row]
    assert not {*router.ports} & {port for ports in sites for port in ports}


def test_location_leads_to_the_router_where_two_sites_run(tmp_path: Path) -> None:
    for settings in (home := two(tmp_path), away_settings(home)):
        (api,) = (member for row in members(settings) for member in row if member.name == "order-api")
        assert api.prepare().environment["DAYBOOK_QUERY_URL"] == "http://127.0.0.1:20019"


def test_a_held_member_is_held_over_restarts_until_released(tmp_path: Path) -> None:
    assert StackJournal(tmp_path).held() == frozenset()
    StackJournal(tmp_path).keep_down("mirror")
    StackJournal(tmp_path).keep_down("guard")
    assert StackJournal(tmp_path).held() == {"mirror", "guard"}
    StackJournal(tmp_path).release("guard")
    StackJournal(tmp_path).release("never-held")
    assert StackJournal(tmp_path).held() == {"mirror"}


def test_the_link_is_whole_until_told(tmp_path: Path) -> None:
    site = Site(StackSettings(home=tmp_path))
    assert read_link(site.link_state) == LinkState(cut=False, delay_ms=0)
    set_links([site], LinkState(cut=True, delay_ms=20))
    assert read_link(site.link_state) == LinkState(cut=True, delay_ms=20)


def test_the_mirror_copies_one_way_exactly_once_and_writes_nothing_at_its_source() -> None:
    lines = dict(
        line.split(" = ")
        for line in mirror_properties(PLACE).splitlines()
        if " = " in line and line[0] != "#"
    )
    assert lines["home->away.enabled"] == "true"
    assert lines["away->home.enabled"] == "false"
    assert lines["home->away.topics"] == "a.b, c.d"
    assert lines["away.exactly.once.source.support"] == "enabled"
    assert lines["home.consumer.isolation.level"] == "read_committed"
    assert lines["replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert lines["emit.offset-syncs.enabled"] == lines["emit.checkpoints.enabled"] == "false"
    assert "site.control" not in mirrored_topics()
    once_off = mirror_properties(replace(PLACE, exactly_once=False))
    assert "away.exactly.once.source.support = disabled" in once_off
    assert "home.consumer.isolation.level = read_uncommitted" in once_off
