"""The options of every connection are defined once and reach every kind of client under its own names."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaException, TopicPartition

from contracts.kafka_address import bootstrap_of, identity_file, secured, sibling
from infra.identity.authority import Authority
from infra.stack.mirror_settings import MirrorPlace, mirror_properties
from services.kernel.log import clients
from services.kernel.log.clients import Connection, KafkaIdentity

NOWHERE = "127.0.0.1:9"
EVERYWHERE = {"reconnect.backoff.max.ms": 500, "log_level": 2}


def test_a_connection_in_the_names_of_each_client() -> None:
    here = Connection("a:1,b:2")
    assert here.librdkafka() == EVERYWHERE | {"bootstrap.servers": "a:1,b:2"}
    assert here.java() == {"bootstrap.servers": "a:1,b:2"}
    assert here.java("home.") == {"home.bootstrap.servers": "a:1,b:2"}
    assert here.faust() == {"broker": "kafka://a:1,b:2"}


def identity(folder: Path, **fields: str) -> str:
    """An address with an identity of these fields."""
    file = folder / "order-api.json"
    file.write_bytes(msgspec.json.encode(KafkaIdentity("CA", **fields)))
    return secured("a:1,b:2", file)


def test_a_user_in_the_names_of_each_client(tmp_path: Path) -> None:
    here = Connection(identity(tmp_path, user="order-api", password="secret"))
    assert here.bootstrap == "a:1,b:2"
    assert here.librdkafka() == EVERYWHERE | {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "order-api",
        "sasl.password": "secret",
        "ssl.ca.pem": "CA",
    }
    java = here.java("home.")
    assert java["home.security.protocol"] == "SASL_SSL"
    assert 'username="order-api" password="secret";' in java["home.sasl.jaas.config"]
    assert java["home.ssl.truststore.certificates"] == "CA"
    assert java["home.ssl.enabled.protocols"] == "TLSv1.3"


def test_a_certificate_in_the_names_of_each_client(tmp_path: Path) -> None:
    here = Connection(identity(tmp_path, certificate="C", key="K"))
    own = {"security.protocol": "SSL", "ssl.certificate.pem": "C", "ssl.key.pem": "K", "ssl.ca.pem": "CA"}
    assert here.librdkafka() == EVERYWHERE | {"bootstrap.servers": "a:1,b:2"} | own
    java = here.java()
    assert (java["ssl.keystore.certificate.chain"], java["ssl.keystore.key"]) == ("C", "K")
    assert java["security.protocol"] == "SSL"


def test_a_user_with_a_certificate_in_the_names_of_each_client(tmp_path: Path) -> None:
    here = Connection(identity(tmp_path, user="mirror", password="secret", certificate="C", key="K"))
    options, java = here.librdkafka(), here.java("home.")
    assert (options["security.protocol"], java["home.security.protocol"]) == ("SASL_SSL", "SASL_SSL")
    assert (options["ssl.certificate.pem"], options["ssl.key.pem"]) == ("C", "K")
    assert (java["home.ssl.keystore.certificate.chain"], java["home.ssl.keystore.key"]) == ("C", "K")
    assert java["home.ssl.keystore.type"] == "PEM"


def test_faust_gets_a_user_and_the_newest_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "identities")
    authority.prepare(["projection"])
    options = Connection(secured("a:1", authority.identity("projection"))).faust()
    credentials = options["broker_credentials"]
    assert options["broker"] == "kafka://a:1"
    assert (credentials.username, credentials.mechanism.value) == ("projection", "SCRAM-SHA-512")
    assert credentials.ssl_context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_an_identity_that_cannot_be_read_is_an_error_of_kafka(tmp_path: Path) -> None:
    for content in (None, b"{}", b"no json"):
        file = tmp_path / "user.json"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(KafkaException, match="no identity for Kafka can be read"):
            clients.admin(secured("a:1", file))


def test_an_identity_does_not_show_its_secret() -> None:
    assert "secret" not in repr(KafkaIdentity("CA", "order-api", "secret"))


def test_addresses() -> None:
    file = Path("/identities/analytics.json")
    address = secured("a:1,b:2", file)
    assert address == "sasl_ssl://a:1,b:2?identity=/identities/analytics.json"
    assert (bootstrap_of(address), identity_file(address)) == ("a:1,b:2", file)
    assert identity_file(sibling(address, "operator-read")) == Path("/identities/operator-read.json")
    assert (bootstrap_of("a:1"), identity_file("a:1"), sibling("a:1", "query")) == ("a:1", None, "a:1")
    with pytest.raises(ValueError, match="not sasl_ssl://a:1"):
        identity_file("sasl_ssl://a:1")


def test_a_mirror_connects_to_both_clusters() -> None:
    mirror = MirrorPlace(Path(), 1, "home", "away", "h:1", "a:2", ("order.events",))
    assert mirror_properties(mirror).startswith(
        "clusters = home, away\nhome.bootstrap.servers = h:1\naway.bootstrap.servers = a:2\n"
    )


def test_an_option_of_every_connection_reaches_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka refuses an unknown option, which proves that each client received it."""

    def insecure(self: Connection) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "daybook.planted": "yes"}

    makers: tuple[Callable[[], object], ...] = (
        lambda: clients.reader(NOWHERE),
        lambda: clients.follower(NOWHERE, [TopicPartition("order.events", 0, 0)]),
        lambda: clients.writer(NOWHERE),
        lambda: clients.admin(NOWHERE),
    )
    for make in makers:
        make()
    monkeypatch.setattr(Connection, "librdkafka", insecure)
    for make in makers:
        with pytest.raises(KafkaException, match=r"daybook\.planted"):
            make()


def test_options_of_the_caller_win() -> None:
    with pytest.raises(KafkaException, match="idempotence"):
        clients.writer(NOWHERE, {"transactional.id": "a", "enable.idempotence": False})
