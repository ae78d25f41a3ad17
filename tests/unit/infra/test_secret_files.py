"""What each container gets: its own secrets, and nobody else's."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from contracts.kafka_address import SCHEME
from infra.base.settings import INSECURE, ROOT, StackSettings
from infra.log.rights import ADMIN, principals
from infra.stack.compose.secret_files import JMX_PASSWORDS, SecretSettings, make
from infra.stack.shop import role_password
from services.kernel.log.clients import KafkaIdentity

# Those that connect to Kafka as long as the shop runs.
LASTING = {
    **{name: name for name in ("order-api", "order-worker", "inventory-api", "inventory-worker")},
    **{name: name for name in ("projection", "guard", "storage", "router")},
    "query-api": "query",
    "marts": "analytics",
    "away-projection": "projection",
    "away-query-api": "query",
    "away-guard": "guard",
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecretSettings:
    (tmp_path / "shop").mkdir()
    (tmp_path / "checkout").touch()
    monkeypatch.setattr(os, "chown", lambda *_: None)  # only root may
    return SecretSettings(
        shop=tmp_path / "shop", checkout=tmp_path / "checkout", infra=ROOT / "infra", kafka_scheme=SCHEME
    )


def contents(settings: SecretSettings) -> dict[str, str]:
    folder = settings.shop / "containers"
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def passwords(settings: SecretSettings) -> Mapping[str, str]:
    folder = settings.shop / "kafka-identities"
    users = (ADMIN, *principals())
    files = {user: (folder / f"{user}.json").read_bytes() for user in users}
    return {user: msgspec.json.decode(file, type=KafkaIdentity).password for user, file in files.items()}


def test_a_process_gets_its_own_identity_and_no_other(settings: SecretSettings) -> None:
    make(settings)
    by_user = passwords(settings)
    assert len({*by_user.values()}) == len(by_user)
    for container, user in LASTING.items():
        own = {path: text for path, text in contents(settings).items() if path.startswith(f"{container}/")}
        users = {name for name, password in by_user.items() if any(password in text for text in own.values())}
        assert users == {user}
        # nor the key of the authority, or of the brokers
        assert not any("PRIVATE KEY" in text for text in own.values())


def test_a_role_of_the_database_is_known_to_its_process_and_the_step_alone(settings: SecretSettings) -> None:
    make(settings)
    shop = StackSettings(home=settings.shop, stack="compose")
    owners = {
        role: {
            path.partition("/")[0]
            for path, text in contents(settings).items()
            if role_password(shop, role) in text
        }
        for role in ("daybook", "owner", "projection", "query", "guard", "auditor")
    }
    steps = {"migrations", "away-migrations"}
    assert owners == {
        "daybook": {*steps, "postgres", "office"},
        "owner": steps,
        "auditor": steps,
        "projection": {*steps, "projection", "away-projection"},
        "query": {*steps, "query-api", "away-query-api"},
        "guard": {*steps, "guard", "away-guard"},
    }


def test_a_second_start_changes_nothing(settings: SecretSettings) -> None:
    make(settings)
    first = contents(settings)
    make(settings)
    assert contents(settings) == first


def test_the_shops_folder_is_its_owners_alone(settings: SecretSettings) -> None:
    make(settings)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.shop.iterdir()}
    assert modes.pop("kafka-identities") == modes.pop("secrets") == 0o700
    assert stat.S_IMODE(settings.shop.stat().st_mode) == 0o700
    assert modes == {"containers": 0o755, "home": 0o755, "away": 0o755}
    # Java refuses it otherwise
    jmx = settings.shop / "containers" / "broker" / JMX_PASSWORDS
    assert stat.S_IMODE(jmx.stat().st_mode) == 0o600


def test_clear_text_is_the_exception_and_can_be_taken_back(settings: SecretSettings) -> None:
    make(settings.model_copy(update={"kafka_scheme": ""}))
    assert (settings.shop / INSECURE).exists()
    clear = contents(settings)
    assert "CLIENTS:PLAINTEXT" in clear["broker/server.properties"]
    assert clear["price-lists/kafka.properties"] == ""
    make(settings)
    assert not (settings.shop / INSECURE).exists()
    secured = contents(settings)["broker/server.properties"]
    assert "PLAINTEXT" not in secured and "StandardAuthorizer" in secured


def test_passwords_outlive_the_identities_of_containers(settings: SecretSettings) -> None:
    """The volume of PostgreSQL has the first password for ever."""
    make(settings)
    first = contents(settings)
    shutil.rmtree(settings.shop / "containers")
    make(settings)
    assert contents(settings) == first
