"""A site is secured, or started with --insecure: what decides it, and what follows. No process is started here."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from contracts.kafka_address import identity_file
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.cli.lifecycle import _security
from infra.stack.embedded.kafka import site_nodes
from infra.stack.embedded.platform import EmbeddedPlatform
from infra.stack.security import prepare_identities
from infra.stack.site import away_settings, sites_of
from infra.stack.tokens import demo_header, issuer_of, verification


def test_it_is_decided_at_each_start(tmp_path: Path) -> None:
    settings = StackSettings(home=tmp_path, port_base=27400)
    _security(settings, insecure=True)
    assert settings.kafka == "127.0.0.1:27492"
    assert not settings.kafka_identities.exists()
    plain = site_nodes(settings, linked=True)[0][0].properties()
    assert plain["listeners"].startswith("PLAINTEXT://127.0.0.1:27492,")
    assert "authorizer.class.name" not in plain
    assert verification(settings) == {"DAYBOOK_TOKEN_KEYS": ""}
    _security(settings, insecure=False)
    assert identity_file(settings.kafka) == tmp_path / "kafka-identities" / "admin.json"
    secured = site_nodes(settings, linked=True)[0][0].properties()
    protocols = dict(pair.split(":") for pair in secured["listener.security.protocol.map"].split(","))
    names = [listener.partition("://")[0] for listener in secured["listeners"].split(",")]
    assert names == ["CLIENTS", "INTERNAL", "PEER", "CONTROLLER"]
    assert {protocols[name] for name in names} == {"SASL_SSL", "SSL"}
    keys = Path(verification(settings)["DAYBOOK_TOKEN_KEYS"])
    assert keys.parent == tmp_path / "identity" and keys.exists()


def test_both_sites_begin_with_the_same_identities(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    home = StackSettings(home=tmp_path, port_base=27400)
    _security(home, insecure=False)
    folders = home.kafka_identities, away_settings(home).kafka_identities
    contents = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in folders]
    assert contents[0] == contents[1]
    assert {"admin.json", "order-worker.json", "broker.pem"} <= contents[0].keys()
    signing = [tmp_path / site / "identity" / "signing-key.json" for site in (".", "away")]
    assert signing[0].read_bytes() == signing[1].read_bytes()


def test_a_site_whose_machine_was_emptied_gets_the_issuer_of_the_other(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    home = StackSettings(home=tmp_path, port_base=27400)
    _security(home, insecure=False)
    key = (tmp_path / "identity" / "signing-key.json").read_bytes()
    EmbeddedPlatform(home).destroy(sites_of(home)["home"])
    assert issuer_of(home).folder == tmp_path / "away" / "identity"
    prepare_identities(home)
    assert (tmp_path / "identity" / "signing-key.json").read_bytes() == key


def test_another_issuer_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYBOOK_TOKEN_KEYS", "https://other.example/jwks.json")
    settings = StackSettings(home=tmp_path, port_base=27400)
    monkeypatch.setenv("DAYBOOK_AUTH", "Authorization: Bearer x.y.z")
    assert verification(settings) == {}
    assert demo_header(settings) == "Authorization: Bearer x.y.z"
    _security(settings, insecure=True)
    assert verification(settings) == {"DAYBOOK_TOKEN_KEYS": ""}
    assert demo_header(settings) == ""


def test_a_running_site_does_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = StackSettings(home=tmp_path, port_base=27400)
    monkeypatch.setattr(StackJournal, "supervised", lambda _: True)
    _security(settings, insecure=False)
    with pytest.raises(typer.Exit):
        _security(settings, insecure=True)
    assert settings.secured
