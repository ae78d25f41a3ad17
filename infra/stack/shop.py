"""The shop's processes on every platform: their names, their addresses, and whether they are ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, urlencode

from infra.base.files import kept_secret, socket_folder
from infra.base.http import http_status
from infra.base.ports import HOST
from infra.base.settings import StackSettings

_PROBE_SECONDS = 2.0
# Of PostgreSQL, on every platform. USER is the superuser, which creates the roles and runs nothing else.
USER = DATABASE = "daybook"
OWNER, AUDITOR = "owner", "auditor"
# The role of each kind of process that needs the database (services/projection/engine/roles.py).
DATABASE_ROLES = {"projection": "projection", "query-api": "query", "guard": "guard"}


@dataclass(frozen=True)
class ShopProcess:
    """A Python process of the shop. Those of one kind share their work; `number` counts them from 0."""

    name: str
    module: str
    part: str | None = None
    number: int = 0

    def numbered(self, count: int) -> Iterator[ShopProcess]:
        """The first `count` processes of this kind."""
        for number, name in enumerate(instances(self.name, count)):
            yield replace(self, name=name, number=number)


def instances(kind: str, count: int) -> list[str]:
    """The names of the first `count` processes of a kind: order-api, order-api-1, …"""
    return [kind, *(f"{kind}-{number}" for number in range(1, count))]


def kind_of(name: str) -> str:
    """order-api for order-api-1."""
    kind, _, number = name.rpartition("-")
    return kind if number.isdigit() else name


# The principals in Kafka of the kinds of process that are not called like theirs (contracts/topics.yaml).
PRINCIPALS = {"query-api": "query"}
ANALYST = "analytics"
MIRROR = "mirror"
STORES = ("broker", "postgres")
# These have no /health and no /metrics.
SILENT = (*STORES, "controller", "link", MIRROR)
WORKERS = {"order": "order-worker", "inventory": "inventory-worker"}
# In order of starting; those of one row start together, the rows stop in reverse.
SERVICES = (
    (
        ShopProcess("registry", "infra.log.registry"),
        ShopProcess("order-worker", "services.order.service", "worker"),
        ShopProcess("inventory-worker", "services.inventory.service", "worker"),
        ShopProcess("projection", "services.projection.main", "project"),
    ),
    (
        ShopProcess("order-api", "services.order.service", "api"),
        ShopProcess("inventory-api", "services.inventory.service", "api"),
        ShopProcess("query-api", "services.projection.main", "query"),
    ),
)
NAMES = (*STORES, *(service.name for row in SERVICES for service in row))
# Each of two sites has these, too.
SITE_NAMES = ("link", "guard", MIRROR)
# Two sites together have a router; the addresses that it has for the APIs.
ROUTER = "router"
ROUTED = {"order-api": "router-order", "inventory-api": "router-inventory", "query-api": "router-query"}


def principal_of(name: str) -> str:
    """As whom a process connects to Kafka."""
    return PRINCIPALS.get(kind_of(name), kind_of(name))


def addresses(settings: StackSettings) -> dict[str, str]:
    """The addresses of the stack: `daybook env` prints them, every process gets them."""
    return {
        "DAYBOOK_KAFKA": settings.kafka_as(ANALYST),
        "DAYBOOK_DATABASE_URL": database_url(settings),
        "DAYBOOK_ORDER_URL": settings.url("order-api"),
        "DAYBOOK_INVENTORY_URL": settings.url("inventory-api"),
        "DAYBOOK_QUERY_URL": settings.url("query-api"),
        "DAYBOOK_REGISTRY_URL": settings.url("registry"),
    }


def further_addresses(settings: StackSettings, counts: Mapping[str, int]) -> dict[str, str]:
    """The addresses of the APIs' further processes, as DAYBOOK_ORDER_URL_1."""
    return {
        f"DAYBOOK_{kind.removesuffix('-api').upper()}_URL_{number}": settings.url(name)
        for kind, count in counts.items()
        if kind.endswith("-api")
        for number, name in enumerate(instances(kind, count))
        if number
    }


def database_url(settings: StackSettings, role: str = AUDITOR, database: str = DATABASE) -> str:
    """`postgresql://…` from this machine for a role, with its password.

    On the embedded stack only the auditor's address is TCP; the others are a socket's. In containers all have TLS.
    Raises FileNotFoundError before the first start of containers.
    """
    account, port = f"{role}:{quote(role_password(settings, role))}", settings.port("postgres")
    if settings.stack == "compose":
        authority = settings.kafka_identities.absolute() / "authority.pem"
        return f"postgresql://{account}@{HOST}:{port}/{database}?{verified(authority)}"
    if role == AUDITOR:
        return f"postgresql://{account}@{HOST}:{port}/{database}"
    socket = urlencode({"host": str(socket_folder(settings.home / "postgres" / "socket")), "port": port})
    return f"postgresql://{account}@/{database}?{socket}"


def verified(authority: Path) -> str:
    """The parameters of an address of PostgreSQL that must prove its name by a certificate of the authority."""
    return urlencode({"sslmode": "verify-full", "sslrootcert": str(authority)})


def role_password(settings: StackSettings, role: str) -> str:
    """The password of a role of the stack's database. On the embedded stack, the first use makes it."""
    if settings.stack == "compose":
        return (settings.home / "secrets" / f"{'database' if role == USER else role}_password").read_text()
    return kept_secret(settings.home / "postgres" / ("password" if role == USER else f"{role}-password"))


def http_ready(url: str, what: str = "ready") -> bool:
    """Whether the process with health at `url` reports that it is ready (or live)."""
    return health(url, what) == 200


def health(url: str, what: str) -> int | None:
    """The status of the process's `/health/…`; None where it does not respond."""
    return http_status(f"{url}/health/{what}", _PROBE_SECONDS)
