"""The authority of a shop's Kafka: its certificates, its files, and what both sites share. No broker runs here."""

from __future__ import annotations

import ssl
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from contracts.topics import TOPICS
from infra.identity import authority as module
from infra.identity.authority import Authority
from infra.log.rights import Right, principals, rights
from services.kernel.log.clients import KafkaIdentity


def identity_of(authority: Authority, user: str) -> KafkaIdentity:
    return msgspec.json.decode(authority.identity(user).read_bytes(), type=KafkaIdentity)


def prepared(folder: Path, copy: Path | None = None) -> Authority:
    authority = Authority(folder)
    authority.prepare(["order-api", "query"], copy)
    return authority


def test_brokers_have_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority = prepared(tmp_path / "identities")
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    own, *chain = x509.load_pem_x509_certificates(authority.keystore.read_bytes())
    own.verify_directly_issued_by(issuer)
    assert chain == [issuer]
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert identity_of(authority, "broker").user == ""


def test_a_client_that_is_strict_knows_a_broker_by_each_of_its_names(tmp_path: Path) -> None:
    """Python is strict from 3.13 on: a certificate names the key of its issuer, and an authority what it may do."""
    authority = Authority(tmp_path, ("broker-1",))
    authority.prepare([])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.keystore)
    client = ssl.create_default_context(cadata=authority.certificate.read_text())
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    for name in ("localhost", "127.0.0.1", "broker-1"):
        shake_hands(client, server, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server, "broker-2")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in (*ends, ends[0], ends[1]):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()


def test_a_server_that_is_no_broker_has_a_certificate_for_nothing_else(tmp_path: Path) -> None:
    authority = prepared(tmp_path)
    file = authority.server("postgres", ["postgres"])
    assert authority.server("postgres", ["postgres"]).read_bytes() == file.read_bytes()
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(file)
    client = ssl.create_default_context(cadata=authority.certificate.read_text())
    shake_hands(client, own, "postgres")
    # and as a client, to a broker that asks for a certificate
    client.load_cert_chain(file)
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.load_cert_chain(authority.keystore)
    broker.load_verify_locations(authority.certificate)
    broker.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate purpose"):
        shake_hands(client, broker, "localhost")


def test_a_user_has_a_certificate_for_a_client_alone(tmp_path: Path) -> None:
    authority = prepared(tmp_path)
    own = identity_of(authority, "query")
    (certificate,) = x509.load_pem_x509_certificates(own.certificate.encode())
    assert certificate.subject.rfc4514_string() == "CN=query"
    assert certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=3600)
    file = tmp_path / "query.pem"
    file.write_text(own.key + own.certificate)
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.load_cert_chain(authority.keystore)
    broker.load_verify_locations(authority.certificate)
    broker.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cadata=authority.certificate.read_text())
    client.load_cert_chain(file)
    shake_hands(client, broker, "localhost")
    # and as a server, to a client that would take it for a broker
    pretending = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pretending.load_cert_chain(file)
    client.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate purpose"):
        shake_hands(client, pretending, "localhost")


def test_a_user_without_a_certificate_gets_one_and_keeps_the_password(tmp_path: Path) -> None:
    authority = prepared(tmp_path)
    own = identity_of(authority, "query")
    older = msgspec.structs.replace(own, certificate="", key="")
    authority.replace({"query.json": msgspec.json.encode(older).decode()})
    prepared(tmp_path)
    renewed = identity_of(authority, "query")
    assert renewed.password == own.password
    assert renewed.certificate
    assert stat.S_IMODE(authority.identity("query").stat().st_mode) == 0o600


def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    authority = prepared(tmp_path / "identities")
    assert stat.S_IMODE(authority.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in authority.folder.iterdir()} == {0o600}


def test_every_user_has_a_password_of_its_own_that_stays(tmp_path: Path) -> None:
    authority = prepared(tmp_path / "identities")
    first = [identity_of(authority, user).password for user in ("order-api", "query")]
    assert len({*first}) == 2
    assert min(map(len, first)) >= 32
    prepared(tmp_path / "identities")
    assert [identity_of(authority, user).password for user in ("order-api", "query")] == first


def test_new_passwords_and_certificates_replace_those_that_were(tmp_path: Path) -> None:
    authority = prepared(tmp_path / "identities")
    before = {file.name: file.read_text() for file in authority.folder.iterdir()}
    authority.replace(authority.brokers() | authority.passwords(["order-api"]))
    after = {file.name: file.read_text() for file in authority.folder.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} == {
        "broker.json",
        "broker.pem",
        "order-api.json",
    }
    assert {stat.S_IMODE(file.stat().st_mode) for file in authority.folder.iterdir()} == {0o600}
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    x509.load_pem_x509_certificates(authority.keystore.read_bytes())[0].verify_directly_issued_by(issuer)


def test_the_other_site_gets_the_same_and_gives_it_back(tmp_path: Path) -> None:
    home = prepared(tmp_path / "home")
    away = prepared(tmp_path / "away", home.folder)
    files = {file.name: file.read_text() for file in home.folder.iterdir()}
    assert {file.name: file.read_text() for file in away.folder.iterdir()} == files
    for file in home.folder.iterdir():
        file.unlink()
    prepared(tmp_path / "home", away.folder)
    assert {file.name: file.read_text() for file in home.folder.iterdir()} == files


def test_a_certificate_is_renewed_before_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROKER_DAYS", module.RENEWED_DAYS - 1)
    authority = prepared(tmp_path / "identities")
    short = authority.keystore.read_bytes()
    monkeypatch.undo()
    prepared(tmp_path / "identities")
    assert authority.keystore.read_bytes() != short
    kept = authority.keystore.read_bytes()
    prepared(tmp_path / "identities")
    assert authority.keystore.read_bytes() == kept
    own = x509.load_pem_x509_certificates(kept)[0]
    assert own.not_valid_after_utc - datetime.now(UTC) > timedelta(days=300)


def test_a_certificate_is_made_anew_for_brokers_that_came_later(tmp_path: Path) -> None:
    folder = tmp_path / "identities"
    module.Authority(folder, ["broker"]).prepare([])
    grown = module.Authority(folder, ["broker", "controller-2"])
    grown.prepare([])
    kept = grown.keystore.read_bytes()
    alternatives = x509.load_pem_x509_certificates(kept)[0].extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "controller-2" in alternatives.value.get_values_for_type(x509.DNSName)
    grown.prepare([])
    assert grown.keystore.read_bytes() == kept


def test_only_workers_of_a_shop_that_has_not_moved_write_commands() -> None:
    before, after = rights("inbox"), rights()
    topics = [own.commands for own in TOPICS.values()]
    workers = [f"{service}-worker" for service in TOPICS]
    extra = {Right(worker, "topic", topic, "write") for worker in workers for topic in topics}
    assert before - after == extra
    assert not after - before


def test_nobody_has_a_right_that_is_not_in_the_catalogue() -> None:
    assert {right.principal for right in rights()} == {*principals()}
    assert {right.operation for right in rights() if right.kind == "topic"} == {
        "read", "write", "create", "delete", "describe_configs",
    }  # fmt: skip
    deleting = {(right.principal, right.name) for right in rights() if right.operation == "delete"}
    assert deleting == {("operator-failover", "mm2-*")}
