"""The certificate authority of a shop's Kafka, and who may connect: a certificate for brokers, passwords for the rest,
who also have a certificate for the other site.

Everything lies in one folder of each site (0700), which contains only files that their owner may read:

- `authority.pem`, `authority.key`: the authority (an EC key on P-256; ten years)
- `broker.pem`, `broker.json`: the certificate with which brokers and controllers prove themselves to each other, and by
  which the start of a site creates the users (a year; renewed at a start in its last 90 days)
- `USER.json`: an `KafkaIdentity` with a password and a certificate (ten years), for each principal of
  `contracts/topics.yaml`
- `SERVER.pem`: key and certificate of a server that is no broker: of PostgreSQL, in containers

Both sites of a shop share the authority and the passwords, and each has a copy, so that they outlive the other's disk.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

import msgspec

from infra.base.files import kept_secret
from services.kernel.log.clients import KafkaIdentity

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import CertificateBuilder, KeyUsage, Name

BROKER = "broker"
AUTHORITY_DAYS, BROKER_DAYS, RENEWED_DAYS = 3650, 365, 90
# Clocks differ: a certificate that begins now is not valid yet for a machine that is behind.
BACKDATED = timedelta(days=1)
NAMES, ADDRESSES = ("localhost",), ("127.0.0.1", "::1")
# The purposes of a certificate: RFC 5280, section 4.2.1.12.
SERVER, CLIENT = "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"


@dataclass(frozen=True)
class Authority:
    """The authority whose files are in `folder`; `prepare` makes what is missing there.

    `names` are those of brokers beside this machine's own: of containers.
    """

    folder: Path
    names: Sequence[str] = ()

    @property
    def certificate(self) -> Path:
        """The file by which clients know the brokers."""
        return self.folder / "authority.pem"

    @property
    def keystore(self) -> Path:
        """The file with a broker's key and its certificate, in the form that Kafka reads (PEM)."""
        return self.folder / f"{BROKER}.pem"

    def identity(self, user: str) -> Path:
        return self.folder / f"{user}.json"

    def prepare(self, users: Iterable[str], copy: Path | None = None) -> None:
        """Make the authority, the brokers' certificate and a password for each of `users`, where they are missing.

        What the folder `copy` of the other site has is taken from there. Raises OSError.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if copy is not None and copy.is_dir():
            for file in sorted(copy.iterdir()):
                if not file.name.startswith("."):
                    kept_secret(self.folder / file.name, file.read_text())
        if not self.certificate.exists():
            self._found()
        if not (self.identity(BROKER).exists() and _lasts(self.keystore, self.names)):
            self.replace(self.brokers())
        identities = {user: self._identity_of(user) for user in users}
        fresh = self.passwords([user for user, own in identities.items() if own is None])
        for name, content in fresh.items():
            kept_secret(self.folder / name, content)
        # of a version of ours without certificates for users
        older = [own for own in identities.values() if own is not None and not own.certificate]
        self.replace({self.identity(own.user).name: _json(self._certified_user(own)) for own in older})

    def passwords(self, users: Iterable[str]) -> dict[str, str]:
        """Contents of a file for each of `users`, by its name, with a new password and certificate."""
        authority = self.certificate.read_text()
        fresh = [KafkaIdentity(authority, user, token_urlsafe(24)) for user in users]
        return {self.identity(own.user).name: _json(self._certified_user(own)) for own in fresh}

    def _identity_of(self, user: str) -> KafkaIdentity | None:
        file = self.identity(user)
        return msgspec.json.decode(file.read_bytes(), type=KafkaIdentity) if file.exists() else None

    def _certified_user(self, own: KafkaIdentity) -> KafkaIdentity:
        """With a certificate that is good for a client alone: nobody is a broker with it."""
        key, certificate = self._certified(own.user, usage=CLIENT, days=AUTHORITY_DAYS)
        return msgspec.structs.replace(own, certificate=certificate, key=key)

    def replace(self, files: Mapping[str, str]) -> None:
        """Write these contents by file name, each file as a whole, where there may be others."""
        for name, content in files.items():
            fresh = self.folder / f".{name}-new"
            fresh.unlink(missing_ok=True)
            kept_secret(fresh, content)
            fresh.rename(self.folder / name)

    def _found(self) -> None:
        """Make the authority. Its certificate comes last: where that is, the key is."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "daybook authority")])
        fresh = _builder(name, key, AUTHORITY_DAYS).issuer_name(name)
        fresh = fresh.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        fresh = fresh.add_extension(_signs_certificates(), critical=True)
        (self.folder / "authority.key").unlink(missing_ok=True)
        kept_secret(self.folder / "authority.key", _pem_of_key(key))
        kept_secret(self.certificate, _signed(fresh, key))

    def brokers(self) -> dict[str, str]:
        """Contents of the files of brokers, by their names: a new key, and the authority's certificate for it."""
        authority = self.certificate.read_text()
        key, certificate = self._certified(BROKER, (*NAMES, *self.names))
        return {
            self.identity(BROKER).name: _json(KafkaIdentity(authority, certificate=certificate, key=key)),
            self.keystore.name: key + certificate + authority,
        }

    def server(self, name: str, names: Sequence[str]) -> Path:
        """The file with key and certificate of a server under these names, after `prepare`. It makes or renews them.

        The certificate is good for nothing else: with it, nobody is a client of a broker. Raises OSError.
        """
        file = self.folder / f"{name}.pem"
        if not _lasts(file, names):
            self.replace({file.name: "".join(self._certified(name, (*NAMES, *names), usage=SERVER))})
        return file

    def _certified(
        self, name: str, names: Sequence[str] = (), *, usage: str = "", days: int | None = None
    ) -> tuple[str, str]:
        """A new key, and the authority's certificate for it. `usage`: what alone it is good for, an OID."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        authority = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        signing = load_pem_private_key((self.folder / "authority.key").read_bytes(), None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        fresh = _builder(subject, key, days or BROKER_DAYS).issuer_name(authority.subject)
        fresh = fresh.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
        fresh = fresh.add_extension(issuer, critical=False)  # Python 3.13 insists on it
        if usage:
            fresh = fresh.add_extension(x509.ExtendedKeyUsage([x509.ObjectIdentifier(usage)]), critical=False)
        if names:
            addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES]
            alternatives = x509.SubjectAlternativeName([*map(x509.DNSName, names), *addresses])
            fresh = fresh.add_extension(alternatives, critical=False)
        return _pem_of_key(key), _signed(fresh, signing)


def _lasts(file: Path, names: Sequence[str] = ()) -> bool:
    """Whether the certificate in the file exists, has `names`, and need not be renewed yet."""
    from cryptography import x509

    if not file.exists():
        return False
    certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lasts = certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=RENEWED_DAYS)
    return lasts and {*names} <= {*alternatives.get_values_for_type(x509.DNSName)}


def _json(identity: KafkaIdentity) -> str:
    return msgspec.json.encode(identity).decode()


def _builder(name: Name, key: EllipticCurvePrivateKey, days: int) -> CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signs_certificates() -> KeyUsage:
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: CertificateBuilder, key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


def _pem_of_key(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
