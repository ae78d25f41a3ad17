"""What each container gets: its own secrets, and nobody else's."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from contracts.kafka_address import SCHEME
from infra.base.settings import INSECURE, ROOT, StackSettings
from infra.log.rights import ADMIN, principals
from infra.stack.compose.secret_files import DATABASE_KEY, JMX_PASSWORDS, SecretSettings, make
from infra.stack.shop import role_password
from services.kernel.log.clients import KafkaIdentity

# The first line of a private key, in PEM or in JSON.
KEY = re.compile(r"PRIVATE KEY-----(?:\\n|\s)+([\w+/=]+)")
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
        # nor a key of the authority, of the brokers, of another user, or of the issuer
        keys = {key for text in own.values() for key in KEY.findall(text)}
        assert keys == {*KEY.findall((settings.shop / "kafka-identities" / f"{user}.json").read_text())}
        assert not any('"d"' in text for text in own.values())


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


def test_each_api_and_the_registry_verify_tokens_by_the_issuers_public_keys(settings: SecretSettings) -> None:
    make(settings)
    public = (settings.shop / "identity" / "jwks.json").read_text()
    verifying = {path for path, text in contents(settings).items() if text == public}
    apis = ("order-api", "inventory-api", "query-api", "away-query-api", "registry")
    assert verifying == {f"{api}/jwks.json" for api in apis}
    metadata = json.loads((settings.shop / "identity" / "openid-configuration.json").read_bytes())
    assert metadata["jwks_uri"] == "file:///run/secrets/jwks.json"


def test_kafka_connect_may_read_schemas_and_nothing_else(settings: SecretSettings) -> None:
    make(settings)
    token = contents(settings)["connect/registry_token"]
    claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["scope"] == "ops:read"
    assert claims["exp"] - claims["iat"] == 365 * 86_400


def test_nobody_connects_to_a_database_that_does_not_prove_its_name(settings: SecretSettings) -> None:
    make(settings)
    every = contents(settings)
    with_address = {path.partition("/")[0]: text for path, text in every.items() if "database_url" in path}
    assert len(with_address) == 9
    authority = (settings.shop / "kafka-identities" / "authority.pem").read_text()
    for container, url in with_address.items():
        assert url.endswith("?sslmode=verify-full&sslrootcert=%2Frun%2Fsecrets%2Fauthority.pem")
        assert every[f"{container}/authority.pem"] == authority
    assert every["connect/authority.pem"] == authority
    certificate = x509.load_pem_x509_certificate(every["postgres/server.pem"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"postgres", "away-postgres"} <= {*names.get_values_for_type(x509.DNSName)}


def test_a_second_start_changes_nothing_but_a_token(settings: SecretSettings) -> None:
    make(settings)
    first = contents(settings)
    make(settings)
    second = contents(settings)
    assert {path for path in first if first[path] != second[path]} == {"connect/registry_token"}
    assert first.keys() == second.keys()


def test_the_shops_folder_is_its_owners_alone(settings: SecretSettings) -> None:
    make(settings)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.shop.iterdir()}
    assert {modes.pop(name) for name in ("kafka-identities", "secrets", "identity")} == {0o700}
    assert stat.S_IMODE(settings.shop.stat().st_mode) == 0o700
    assert modes == {"containers": 0o755, "home": 0o755, "away": 0o755}
    # Java and PostgreSQL refuse them otherwise
    for file in (f"broker/{JMX_PASSWORDS}", f"postgres/{DATABASE_KEY}"):
        assert stat.S_IMODE((settings.shop / "containers" / file).stat().st_mode) == 0o600


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
    token = "connect/registry_token"  # each start makes a new one
    assert contents(settings) | {token: ""} == first | {token: ""}
