"""The processes of the embedded stack: their programs, environments, order, and readiness."""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaException

from infra.base.errors import NotReady
from infra.base.files import kept_secret
from infra.base.journal import StackJournal
from infra.base.ports import HOST, listening
from infra.base.settings import MOST, StackSettings
from infra.base.waiting import TooLate
from infra.log.control import Address
from infra.log.topics import Unsafe, catalogue, mirrored_topics
from infra.stack.database import database_open
from infra.stack.embedded.child import Program
from infra.stack.embedded.kafka import NODE_SECONDS, Node, mirror_ready, prepare_mirror, site_nodes
from infra.stack.embedded.postgres import PostgresPlace, postgres_ready, postgres_responds, prepare_postgres
from infra.stack.mirror_settings import MirrorPlace
from infra.stack.security import apply_security, starting_address
from infra.stack.shop import (
    DATABASE_ROLES,
    MIRROR,
    ROUTED,
    SERVICES,
    STORES,
    WORKERS,
    ShopProcess,
    addresses,
    database_url,
    health,
    http_ready,
    kind_of,
    principal_of,
)
from infra.stack.site import Site, home_settings, peer
from infra.stack.start import end_last_mirror, prepare_log, prove_role, require_passive
from infra.stack.tokens import verification
from services.kernel.log.control import ControlWatch

# `daybook up --active` sets it: the other site is not contacted.
FORCE_ACTIVE = "DAYBOOK_TOLD_ACTIVE"
GUARD = ShopProcess("guard", "infra.dr.guard")
MIRROR_SECONDS = 600.0  # on two busy cores, between clusters, it copies its first record after four minutes
SECRET_VARIABLES = ("DAYBOOK_DATABASE_URL", "DAYBOOK_HASH_KEY")


@dataclass(frozen=True)
class Member:
    """One process. `prepare` returns what to run; `ready` must return true within `seconds`.

    `alive` is false for a process that runs and does nothing. The start of the stack waits for an `awaited` member,
    and fails with it.
    """

    name: str
    ports: tuple[int, ...]
    prepare: Callable[[], Program]
    ready: Callable[[], bool]
    seconds: float
    alive: Callable[[], bool] = lambda: True
    awaited: bool = True


def members(
    settings: StackSettings, only: Collection[str] = (), counts: Mapping[str, int] = MappingProxyType({})
) -> list[list[Member]]:
    """The stack's members in rows, in order of starting; `only` keeps those kinds (none: all).

    Of a kind that is not in `counts` there is one.
    """
    other = peer(settings)
    stores = _stores(settings)
    rows = [
        *stores,
        *(
            [
                _service(settings, service)
                for kind in row
                for service in kind.numbered(min(MOST, counts.get(kind.name, 1)))
            ]
            for row in SERVICES
        ),
    ]
    if other is not None:
        stores[-1].append(_link(settings))
        rows.append([_service(settings, GUARD, seconds=60), _mirror(settings, other)])
    kinds = {*only, *(["controller"] if "broker" in only else [])}
    kept = [[member for member in row if not only or kind_of(member.name) in kinds] for row in rows]
    return [row for row in kept if row]


class Scaled:
    """The members as `daybook scale` wants them now. The slots are those of `site.control`, which must be readable at
    the first call; the other numbers are in the journal."""

    def __init__(self, settings: StackSettings, only: Collection[str]) -> None:
        self._settings, self._only = settings, only
        self._watch: ControlWatch | None = None
        self._counts: Mapping[str, int] = {}
        self._rows: list[list[Member]] = []

    def __call__(self) -> list[list[Member]]:
        """Raises NotReady, only at the first call."""
        if self._watch is None:
            try:
                self._watch = ControlWatch(self._settings.kafka)
            except (KafkaException, TimeoutError) as reason:
                raise NotReady(f"the slot layouts are not known: {reason}") from reason
        control = self._watch.control
        slots = {worker: control.layout(service).slots for service, worker in WORKERS.items()}
        counts = Site(self._settings).journal.counts() | slots
        if counts != self._counts:
            self._counts, self._rows = counts, members(self._settings, self._only, counts)
        return self._rows


def _stores(settings: StackSettings) -> list[list[Member]]:
    """The controllers of a cluster have a row of their own: a broker cannot stop cleanly without them."""
    database = database_place(settings)
    postgres = Member(
        "postgres",
        (database.port,),
        lambda: prepare_postgres(database),
        lambda: postgres_ready(database) and database_open(settings),
        seconds=120,
    )
    *controllers, brokers = site_nodes(settings, linked=peer(settings) is not None)
    return [*(list(map(_node, row)) for row in controllers), [*map(_node, brokers), postgres]]


def database_place(settings: StackSettings) -> PostgresPlace:
    """Where the site's server is."""
    return PostgresPlace(settings.home / "postgres", settings.port("postgres"))


def store_probes(settings: StackSettings) -> dict[str, Callable[[], bool]]:
    """Whether each store responds, by name. A probe changes nothing: `ready` of PostgreSQL's member also creates what
    its database lacks."""
    nodes = {member.name: member.ready for row in members(settings, STORES) for member in row}
    return {**nodes, "postgres": lambda: postgres_responds(database_place(settings))}


def _node(node: Node) -> Member:
    return Member(node.name, node.ports, node.prepare, node.ready, NODE_SECONDS)


def _link(settings: StackSettings) -> Member:
    ways = {
        settings.port(link): settings.port(broker)
        for link, broker in zip(settings.nodes("link"), settings.nodes("peer"), strict=True)
    }
    state = Site(settings).link_state.absolute()
    arguments = (HOST, str(state), *(f"{port}={HOST}:{broker}" for port, broker in ways.items()))
    command = (sys.executable, "-m", "infra.stack.link", *arguments)
    return Member(
        "link",
        tuple(ways),
        lambda: Program("link", command, _environment(settings, "link")),
        lambda: all(map(listening, ways)),
        seconds=60,
    )


def _mirror(settings: StackSettings, source: Site) -> Member:
    mirror = mirror_place(settings, source)

    def prepare() -> Program:
        own = Address(settings.site, settings.kafka)
        require_passive(own)
        end_last_mirror(own, source.name)
        return prepare_mirror(mirror)

    return Member(
        "mirror",
        (mirror.port,),
        prepare,
        lambda: mirror_ready(mirror),
        seconds=MIRROR_SECONDS,
        # only the guard can tell
        alive=lambda: health(settings.health_url("guard"), "mirror") != 503,
        awaited=False,
    )


def mirror_place(settings: StackSettings, source: Site) -> MirrorPlace:
    """The mirror at the site of `settings`, which copies from `source`."""
    return MirrorPlace(
        settings.home / "mirror",
        settings.port("mirror"),
        source.name,
        settings.site,
        source.link_from(settings, MIRROR),
        settings.kafka_as(MIRROR),
        mirrored_topics(),
    )


def _service(settings: StackSettings, service: ShopProcess, seconds: float = 300) -> Member:
    """By default `seconds` is long enough for a worker that restores a long log."""
    command = (sys.executable, "-m", service.module, *filter(None, [service.part]))
    return Member(
        service.name,
        settings.ports(service.name),
        lambda: Program(service.name, command, _environment(settings, service.name, service.number)),
        lambda: http_ready(settings.health_url(service.name)),
        seconds,
        # clients of this machine may have all connections of its address: a refusal is a sign of life
        alive=lambda: health(settings.health_url(service.name), "live") in (200, 429),
    )


def _peer_environment(settings: StackSettings, name: str) -> dict[str, str]:
    """Who writes or watches knows the other site's broker; a passive site's write APIs name the active one's."""
    other = peer(settings)
    if other is None:
        return {"DAYBOOK_PEER_KAFKA": ""}
    peers = {"DAYBOOK_PEER_KAFKA": other.link_from(settings, principal_of(name))}
    if name == GUARD.name:
        return {**peers, "DAYBOOK_PEER": other.name}
    if kind_of(name) in ("order-api", "inventory-api"):
        # `Location` follows the active site
        reads = home_settings(settings).url(ROUTED["query-api"])
        return {**peers, "DAYBOOK_PEER_URL": other.settings.url(kind_of(name)), "DAYBOOK_QUERY_URL": reads}
    return peers if kind_of(name) in WORKERS.values() else {}


def _environment(settings: StackSettings, name: str, number: int = 0) -> dict[str, str]:
    """The caller's environment may tune a service; addresses and identity are fixed. Of the secrets, a process gets its
    own, and those that the caller's environment has are left out."""
    caller = {variable: value for variable, value in os.environ.items() if variable not in SECRET_VARIABLES}
    fixed = {
        "DAYBOOK_SLOT": str(number),
        "DAYBOOK_REPLICA": str(number),
        "DAYBOOK_PROJECTION_INSTANCE": str(number),
        "DAYBOOK_HTTP_HOST": HOST,
        "DAYBOOK_HTTP_PORT": str(settings.port(name)),
        "DAYBOOK_HEALTH_HOST": HOST,
        "DAYBOOK_HEALTH_PORT": str(settings.health_port(name)),
        "DAYBOOK_HOME": str(settings.home.absolute()),
        "DAYBOOK_PORT_BASE": str(settings.port_base),
        "DAYBOOK_SITE": settings.site,
    }
    own = {
        variable: value for variable, value in addresses(settings).items() if variable not in SECRET_VARIABLES
    } | {"DAYBOOK_KAFKA": settings.kafka_as(principal_of(name))}
    return {
        "PYTHONUNBUFFERED": "1",
        **caller,
        **fixed,
        **own,
        **_secrets(settings, name),
        **verification(settings),
        **_peer_environment(settings, name),
    }


def _secrets(settings: StackSettings, name: str) -> dict[str, str]:
    if kind_of(name) in ("order-api", "inventory-api"):
        return {"DAYBOOK_HASH_KEY": os.environ.get("DAYBOOK_HASH_KEY") or _hash_key(settings)}
    role = DATABASE_ROLES.get(kind_of(name))
    return {"DAYBOOK_DATABASE_URL": database_url(settings, role)} if role else {}


def _hash_key(settings: StackSettings) -> str:
    """The same at both sites: clients keep their keys. Each site has a copy, so that it outlives the other's disk."""
    own, other = settings.home / "hash-key", peer(settings)
    copies = [own] if other is None else [own, other.settings.home / "hash-key"]
    for file in copies:
        if file.exists():
            return kept_secret(own, file.read_text("utf-8"))
    return kept_secret(own)


def log_file(settings: StackSettings, name: str) -> Path:
    """The file of a process's output."""
    return settings.logs / f"{name}.log"


def open_site(settings: StackSettings, journal: StackJournal, stopping: Callable[[], bool]) -> None:
    """Between the broker and the services: topics, the site's first records, and the proof of its role.

    Returns early when `stopping`. Raises NotReady.
    """
    try:
        topics = catalogue(settings.brokers)
        created, corrected = prepare_log(starting_address(settings), settings.site, topics, stopping)
        added, removed = apply_security(settings)
    except (KafkaException, TooLate, Unsafe) as reason:
        raise NotReady(str(reason)) from reason
    if added or removed:
        journal.record("broker", "rights", f"{added} added, {removed} removed")
    for line in corrected:
        journal.record("broker", "topics", f"{line}: corrected")
    journal.record("broker", "topics", f"{len(created)} created")
    other = peer(settings)
    if other is None or stopping():
        return
    own = Address(settings.site, settings.kafka)
    forced = os.environ.get(FORCE_ACTIVE) == "1"
    try:
        standing = prove_role(own, Address(other.name, other.link), forced=forced, stopping=stopping)
    except (KafkaException, TimeoutError) as reason:
        raise NotReady(f"the site's role is not known: {reason}") from reason
    journal.record("site", "role", standing)
