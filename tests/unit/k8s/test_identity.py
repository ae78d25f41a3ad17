"""Who a pod is to Kafka: Strimzi's secrets become the file that our clients read."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.kafka_address import secured
from infra.base.errors import NotReady
from infra.k8s.identity import IdentitySettings, main, write_identities
from services.kernel.log.clients import Connection


@pytest.fixture
def settings(tmp_path: Path) -> IdentitySettings:
    secrets, identity = tmp_path / "secrets", tmp_path / "identity"
    for folder in (secrets, identity):
        folder.mkdir()
    for name, text in (("own-password", "a secret"), ("own-ca.crt", "an authority")):
        (secrets / name).write_text(text)
    return IdentitySettings(kafka_user="order-api", kafka_secrets=secrets, kafka_identity=identity)


def test_a_client_reads_it(settings: IdentitySettings) -> None:
    [own] = write_identities(settings)
    options = Connection(secured("daybook-kafka-bootstrap:9093", own)).librdkafka()
    assert (options["sasl.username"], options["sasl.password"]) == ("order-api", "a secret")
    assert (options["security.protocol"], options["ssl.ca.pem"]) == ("SASL_SSL", "an authority")


def test_the_other_site_has_its_own(settings: IdentitySettings) -> None:
    for name in ("peer-password", "peer-ca.crt"):
        (settings.kafka_secrets / name).write_text(name)
    assert [file.name for file in write_identities(settings)] == ["own.json", "peer.json"]


def test_without_its_secrets_the_pod_does_not_start(
    settings: IdentitySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.kafka_secrets / "own-password").unlink()
    with pytest.raises(NotReady, match="has no own-password"):
        write_identities(settings)
    monkeypatch.setenv("DAYBOOK_KAFKA_USER", "order-api")
    monkeypatch.setenv("DAYBOOK_KAFKA_SECRETS", str(settings.kafka_secrets))
    with pytest.raises(SystemExit, match="identity: "):
        main()
