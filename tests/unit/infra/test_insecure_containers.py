"""`--stack compose up --insecure`: decided at a start, not while the shop runs, and kept for the commands after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from infra.base.settings import StackSettings
from infra.cli import in_containers
from infra.stack.compose.engine import EMPTY_IF_INSECURE, Container, compose_environment

RUNNING = Container("shop-broker-1", "broker", "running", "healthy", 0, ())


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackSettings:
    for name in EMPTY_IF_INSECURE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(in_containers, "containers", lambda _: [])
    return StackSettings(home=tmp_path, port_base=20_000, stack="compose")


def test_kafka_and_apis_are_secured_unless_a_start_says_otherwise(settings: StackSettings) -> None:
    in_containers.decide_security(settings, insecure=False)
    assert settings.kafka.startswith("sasl_ssl://")
    assert not {*EMPTY_IF_INSECURE} & compose_environment(settings).keys()
    in_containers.decide_security(settings, insecure=True)
    assert settings.kafka == "127.0.0.1:20092"
    assert {compose_environment(settings)[name] for name in EMPTY_IF_INSECURE} == {""}
    in_containers.decide_security(settings, insecure=False)
    assert settings.secured


def test_another_issuer_is_passed_on_and_an_empty_variable_is_none(
    settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_TOKEN_KEYS", "https://other.example/jwks.json")
    assert compose_environment(settings)["DAYBOOK_TOKEN_KEYS"] == "https://other.example/jwks.json"
    monkeypatch.setenv("DAYBOOK_TOKEN_KEYS", "")
    assert "DAYBOOK_TOKEN_KEYS" not in compose_environment(settings)


def test_a_running_shop_keeps_its_kind(settings: StackSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_containers, "containers", lambda _: [RUNNING])
    in_containers.decide_security(settings, insecure=False)
    with pytest.raises(typer.Exit):
        in_containers.decide_security(settings, insecure=True)
    assert settings.secured
