"""The shop's processes on every platform: their names, their addresses, and whether they are ready."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from infra.base.http import http_status
from infra.base.ports import HOST
from infra.base.secret import kept_secret
from infra.base.settings import StackSettings

_PROBE_SECONDS = 2.0
# Of PostgreSQL, on every platform.
USER = DATABASE = "daybook"


@dataclass(frozen=True)
class ShopProcess:
    """A Python process of the shop."""

    name: str
    module: str
    part: str | None = None


MIRROR = "mirror"
STORES = ("broker", "postgres")
# These answer no /health and no /metrics.
SILENT = (*STORES, "link", MIRROR)
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
# What each of two sites has beside them.
SITE_NAMES = ("link", "guard", MIRROR)


def addresses(settings: StackSettings) -> dict[str, str]:
    """What outside tools need: `daybook env` prints it, every process gets it."""
    return {
        "DAYBOOK_KAFKA": settings.kafka,
        "DAYBOOK_DATABASE_URL": database_url(settings),
        "DAYBOOK_ORDER_URL": settings.url("order-api"),
        "DAYBOOK_INVENTORY_URL": settings.url("inventory-api"),
        "DAYBOOK_QUERY_URL": settings.url("query-api"),
        "DAYBOOK_REGISTRY_URL": settings.url("registry"),
    }


def database_url(settings: StackSettings, database: str = DATABASE) -> str:
    """`postgresql://…` from this machine, with the password in it.

    Raises FileNotFoundError before the first start of containers.
    """
    if settings.stack == "compose":
        password = (settings.home / "secrets" / "database_password").read_text()
    else:
        password = kept_secret(settings.home / "postgres" / "password")
    return f"postgresql://{USER}:{quote(password)}@{HOST}:{settings.port('postgres')}/{database}"


def http_ready(url: str, what: str = "ready") -> bool:
    """True when the process at `url` says that it is ready (or live)."""
    return health(url, what) == 200


def health(url: str, what: str) -> int | None:
    """The status of the process's `/health/…`; None where it does not respond."""
    return http_status(f"{url}/health/{what}", _PROBE_SECONDS)
