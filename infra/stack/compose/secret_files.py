"""Makes the secrets of the shop in containers, as the first step of every start. What exists is kept.

`python -m infra.stack.compose.secret_files`, in a container that alone sees the whole folder of the shop:

- `kafka-identities`: Kafka's authority, certificates and passwords (`infra/identity/authority.py`)
- `secrets`: the passwords of the database's roles, and other secrets, one in a file
- `identity`: the issuer of access tokens (`infra/identity/issuer.py`)
- `containers/NAME`: what the container NAME gets, which sees this folder and no other
- `home`, `away`: what the containers of each site see of it: its link's state, and what is held down

The shop's folder belongs to the owner of the checkout, and nobody else may enter it. Files in `containers` are
readable for all: in its container the reader is another user.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

import msgspec

from contracts.kafka_address import secured
from infra.base.files import kept_secret, write_changed
from infra.base.settings import INSECURE, FromEnvironment
from infra.identity.authority import BROKER, Authority
from infra.identity.issuer import TokenIssuer
from infra.log.rights import ADMIN, MIRROR, principals
from infra.stack.compose.engine import CLUSTER_NODES
from infra.stack.mirror_settings import property_lines
from infra.stack.security import security_properties
from infra.stack.shop import AUDITOR, DATABASE, DATABASE_ROLES, OWNER, USER, verified
from services.kernel.log.clients import Connection

# Under these names the brokers' certificate is shown.
NAMES = tuple(f"{site}{node}" for site in ("", "away-") for node in ("broker", *CLUSTER_NODES, "link"))
# Where a broker's image looks for its settings; its folder is mounted there.
BROKER_CONFIG = Path("/mnt/shared/config")
# Where every other container finds its files.
RUN_SECRETS = Path("/run/secrets")
KAFKA, AUTHORITY = "kafka.json", "authority.pem"
DATABASES = {"": "postgres", "away-": "away-postgres"}
ROLES = (OWNER, *DATABASE_ROLES.values(), AUDITOR)
# What holds for each kind of node (infra/kafka), by its container's folder.
NODES = {"broker": "broker", "node": "replicated"}
# Who reads a broker's JMX.
JMX, JMX_PASSWORDS = "metrics", "jmx.password"
DATABASE_KEY = "server.pem"
# Java and PostgreSQL refuse such a file if others than their own user may read it: its number in the image.
OWNERS = {JMX_PASSWORDS: 1000, DATABASE_KEY: 999}
# The token of Kafka Connect for the registry. Every start makes a new one.
TOKEN_HOURS = 24.0 * 365
Files: TypeAlias = Iterator[tuple[str, dict[str, str]]]
"""A container's folder, and the content of each file in it."""


class SecretSettings(FromEnvironment):
    """Environment variables: DAYBOOK_ before each.

    `shop` is the folder of the shop, which shall belong to the owner of the file `checkout`; `infra` is that of the
    checkout. An empty `kafka_scheme` means `--insecure`.
    """

    shop: Path = Path("/shop")
    checkout: Path = Path("/checkout")
    infra: Path = Path("/infra")
    kafka_scheme: str


@dataclass(frozen=True)
class Secrets:
    """What the folder `shop` has; reading a secret makes it."""

    shop: Path
    secured: bool

    @property
    def authority(self) -> Authority:
        return Authority(self.shop / "kafka-identities", NAMES)

    @property
    def issuer(self) -> TokenIssuer:
        return TokenIssuer(self.shop / "identity", RUN_SECRETS)

    @property
    def token_keys(self) -> dict[str, str]:
        """The file by which an API verifies tokens."""
        return {self.issuer.keys.name: self.issuer.keys.read_text()}

    def kept(self, name: str) -> str:
        """A secret without another form: hexadecimal."""
        return kept_secret(self.shop / "secrets" / name, token_hex(24))

    def password(self, role: str) -> str:
        """Of a role of the database."""
        return self.kept(f"{'database' if role == USER else role}_password")

    def database(self, role: str, host: str) -> dict[str, str]:
        """The files by which a process connects to the database as `role`."""
        address = f"postgresql://{role}:{self.password(role)}@{host}:5432/{DATABASE}"
        return {
            "daybook_database_url": f"{address}?{verified(RUN_SECRETS / AUTHORITY)}",
            AUTHORITY: self.authority.certificate.read_text(),
        }

    def identity(self, user: str) -> str:
        """The file by which a process connects to Kafka as `user`."""
        return self.authority.identity(user).read_text()

    def java(self, user: str, *prefixes: str) -> str:
        """The same for Java's clients, without addresses, as a file of properties; empty in clear text."""
        if not self.secured:
            return ""
        connection = Connection(secured("", self.authority.identity(user)))
        options = {name: value for prefix in prefixes for name, value in connection.java(prefix).items()}
        return (
            property_lines({name: value for name, value in options.items() if "bootstrap" not in name}) + "\n"
        )


def container_files(secrets: Secrets, infra: Path) -> Mapping[str, Mapping[str, str]]:
    """The content of every file, by container and name."""
    return dict(
        [
            *_nodes(secrets, infra),
            *_processes(secrets),
            *(pair for site, host in DATABASES.items() for pair in _with_database(secrets, site, host)),
            *_profiles(secrets),
        ]
    )


def _nodes(secrets: Secrets, infra: Path) -> Files:
    security = security_properties(Authority(BROKER_CONFIG) if secrets.secured else None, broker=False)
    lines = "".join(f"{name}={value}\n" for name, value in security.items())
    stores = (secrets.authority.keystore, secrets.authority.certificate)
    own = {file.name: file.read_text() for file in stores}
    own |= {JMX_PASSWORDS: f"{JMX} {secrets.kept('jmx_password')}\n", "jmx.access": f"{JMX} readonly\n"}
    client = {"client.properties": secrets.java(BROKER, "")}
    for name, shared in NODES.items():
        properties = (infra / "kafka" / f"{shared}.properties").read_text()
        yield name, {**own, **client, "server.properties": lines + properties}
    jmx = (infra / "monitoring" / "jmx.yml").read_text()
    yield "broker-metrics", {"jmx.yml": f"{jmx}username: {JMX}\npassword: {secrets.kept('jmx_password')}\n"}
    yield "controller-proof", client
    certificate = secrets.authority.server("postgres", [*DATABASES.values()])
    yield "postgres", {"password": secrets.password(USER), DATABASE_KEY: certificate.read_text()}


def _processes(secrets: Secrets) -> Files:
    """Those that have no database; both sites' have the same."""
    for name in ("order-worker", "inventory-worker", "storage", "router"):
        yield name, {KAFKA: secrets.identity(name)}
    for name in ("order-api", "inventory-api"):
        hash_key = {"daybook_hash_key": secrets.kept("daybook_hash_key")}
        yield name, {KAFKA: secrets.identity(name), **hash_key, **secrets.token_keys}
    yield "registry", secrets.token_keys
    everybody = (BROKER, ADMIN, *principals())
    yield "topics", {f"{user}.json": secrets.identity(user) for user in everybody}
    steps = ("operator-failover", MIRROR)
    yield "mirror-settings", {f"{user}.json": secrets.identity(user) for user in steps}


def _with_database(secrets: Secrets, site: str, host: str) -> Files:
    passwords = {role: secrets.password(role) for role in ROLES}
    all_roles = {"daybook_role_passwords": msgspec.json.encode(passwords).decode()}
    yield f"{site}migrations", {**secrets.database(USER, host), **all_roles}
    for name, role in DATABASE_ROLES.items():
        keys = secrets.token_keys if name == "query-api" else {}
        yield f"{site}{name}", {KAFKA: secrets.identity(role), **secrets.database(role, host), **keys}


def _profiles(secrets: Secrets) -> Files:
    office = {"daybook_office_password": secrets.kept("daybook_office_password")}
    yield "office", {**secrets.database(USER, DATABASES[""]), **office}
    properties = {"kafka.properties": secrets.java("connect", "", "producer.", "consumer.", "admin.")}
    reads = {"registry_token": secrets.issuer.token("connect", ["ops:read"], TOKEN_HOURS)}
    certificate = {AUTHORITY: secrets.authority.certificate.read_text()}
    yield "connect", {**properties, **office, **reads, **certificate}
    yield "price-lists", properties
    yield "gate", {"daybook_tools_password": secrets.kept("tools_password")}
    yield "marts", {KAFKA: secrets.identity("analytics")}


def make(settings: SecretSettings) -> None:
    """Make and hand out what is missing. Raises OSError."""
    shop, secured_shop = settings.shop, bool(settings.kafka_scheme)
    secrets = Secrets(shop, secured_shop)
    secrets.authority.prepare([ADMIN, *principals()])
    secrets.issuer.prepare()
    for container, files in container_files(secrets, settings.infra).items():
        folder = shop / "containers" / container
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_changed(folder / name, content.encode())
    for site in ("home", "away"):
        (shop / site).mkdir(exist_ok=True)
    # home's mirror, until away is the active site
    if not (held := shop / "home" / "held.json").exists():
        held.write_text('["mirror"]')
    mark = shop / INSECURE
    if secured_shop:
        mark.unlink(missing_ok=True)
    else:
        mark.touch()
    _give(shop, settings.checkout.stat())


def _give(shop: Path, owner: os.stat_result) -> None:
    """To the owner of the checkout, and let others read only what containers get. Docker makes folders as root."""
    open_to_all = {shop / name for name in ("home", "away", "containers")}
    private_folders = {shop / name for name in ("kafka-identities", "identity", "secrets")}
    own = private_folders | open_to_all
    for path in (shop, shop / INSECURE, *own, *(inner for folder in own for inner in folder.rglob("*"))):
        if not path.exists():
            continue
        is_open = path in open_to_all or not open_to_all.isdisjoint(path.parents)
        private = not is_open or path.name in OWNERS
        path.chmod((0o755 if path.is_dir() else 0o644) & (0o700 if private else 0o777))
        os.chown(path, OWNERS.get(path.name, owner.st_uid), owner.st_gid)


def main() -> None:
    """Ends the process with exit code 1 and the reason where it fails."""
    try:
        make(SecretSettings())  # type: ignore[call-arg] # from the environment
    except OSError as reason:
        sys.exit(f"secrets: {reason}")


if __name__ == "__main__":
    main()
