"""The processes of the embedded stack: what each runs, in which environment and order, when it is ready."""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from infra.base.ports import HOST, listening
from infra.base.secret import kept_secret
from infra.base.settings import StackSettings
from infra.log.asking import Address
from infra.log.topics import mirrored_topics
from infra.stack.embedded.broker import BrokerPlace, broker_ready, prepare_broker
from infra.stack.embedded.child import Program
from infra.stack.embedded.mirror import mirror_ready, prepare_mirror
from infra.stack.embedded.postgres import PostgresPlace, postgres_ready, prepare_postgres
from infra.stack.mirror_settings import MirrorPlace
from infra.stack.shop import SERVICES, ShopProcess, addresses, health, http_ready
from infra.stack.site import Site, home_settings, own_site, peer
from infra.stack.start import end_last_mirror, require_passive

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Member:
    """One process. `prepare` says what to run; `ready` asks it; `seconds` is how long that may take.

    `alive` is false for a process that runs and does nothing. The start of the stack waits for it, and fails
    with it, unless it is not `awaited`.
    """

    name: str
    ports: tuple[int, ...]
    prepare: Callable[[], Program]
    ready: Callable[[], bool]
    seconds: float
    alive: Callable[[], bool] = lambda: True
    awaited: bool = True


def members(settings: StackSettings, only: Collection[str] = ()) -> list[list[Member]]:
    """The stack's members in rows, in order of starting; `only` keeps those names (none: all)."""
    other = peer(settings)
    rows = [
        _stores(settings),
        *([_service(settings, service, _told_of(other, service)) for service in row] for row in SERVICES),
    ]
    if other is not None:
        rows[0].append(_link(settings))
        rows.append([_guard(settings, other), _mirror(settings, other)])
    kept = [[member for member in row if not only or member.name in only] for row in rows]
    return [row for row in kept if row]


def _stores(settings: StackSettings) -> list[Member]:
    broker = BrokerPlace(settings.home / "broker", settings.port("broker"), settings.port("controller"))
    if peer(settings) is not None:
        broker = replace(broker, peer_port=settings.port("peer"), link_port=settings.port("link"))
    postgres = _postgres(settings)
    return [
        Member(
            "broker",
            tuple(port for port in (broker.port, broker.controller_port, broker.peer_port) if port),
            lambda: prepare_broker(broker),
            lambda: broker_ready(broker.bootstrap),
            seconds=120,
        ),
        Member(
            "postgres",
            (postgres.port,),
            lambda: prepare_postgres(postgres),
            lambda: postgres_ready(postgres),
            seconds=120,
        ),
    ]


def _postgres(settings: StackSettings) -> PostgresPlace:
    return PostgresPlace(settings.home / "postgres", settings.port("postgres"))


def _link(settings: StackSettings) -> Member:
    port, broker = settings.port("link"), settings.port("peer")
    state = own_site(settings).link_state.absolute()
    way = f"{port}={HOST}:{broker}"
    command = (sys.executable, "-m", "infra.stack.link", HOST, str(state), way)
    return Member(
        "link",
        (port,),
        lambda: Program("link", command, _environment(settings, "link")),
        lambda: listening(port),
        seconds=60,
    )


def _guard(settings: StackSettings, other: Site) -> Member:
    told = {"DAYBOOK_PEER": other.name, "DAYBOOK_PEER_KAFKA": other.link}
    return replace(_service(settings, ShopProcess("guard", "infra.dr.guard"), told), seconds=60)


def _mirror(settings: StackSettings, source: Site) -> Member:
    place = mirror_place(settings, source)

    def prepare() -> Program:
        own = Address(settings.site, settings.kafka)
        require_passive(own)
        end_last_mirror(own, source.name)
        return prepare_mirror(place)

    return Member(
        "mirror",
        (place.port,),
        prepare,
        lambda: mirror_ready(place),
        seconds=120,
        # the guard knows, and without one nobody does
        alive=lambda: health(settings.url("guard"), "mirror") != 503,
        awaited=False,
    )


def mirror_place(settings: StackSettings, source: Site) -> MirrorPlace:
    """The mirror at the site of `settings`, which copies from `source`."""
    return MirrorPlace(
        settings.home / "mirror",
        settings.port("mirror"),
        source.name,
        settings.site,
        source.link,
        settings.kafka,
        mirrored_topics(),
    )


def _service(
    settings: StackSettings, service: ShopProcess, told: Mapping[str, str] = MappingProxyType({})
) -> Member:
    """`told` is what only this one has to know."""
    command = (sys.executable, "-m", service.module, *([service.part] if service.part else []))
    return Member(
        service.name,
        (settings.port(service.name),),
        lambda: Program(service.name, command, {**_environment(settings, service.name), **told}),
        lambda: http_ready(settings.url(service.name)),
        # A long log takes a worker a while to restore.
        seconds=300,
        # clients of this machine may have all connections of its address: refusing one is a sign of life
        alive=lambda: health(settings.url(service.name), "live") in (200, 429),
    )


def _told_of(other: Site | None, service: ShopProcess) -> Mapping[str, str]:
    """A passive site's write APIs name the active site's."""
    if other is None or service.name not in ("order-api", "inventory-api"):
        return _NOTHING
    return {"DAYBOOK_PEER_URL": other.settings.url(service.name)}


def _environment(settings: StackSettings, name: str) -> dict[str, str]:
    """The caller's environment may tune a service; what makes this one stack is ours to say."""
    tunable = {
        "DAYBOOK_SLOT": "0",
        "DAYBOOK_SLOTS": "1",
        "DAYBOOK_LAYOUT": "1",
        "DAYBOOK_REPLICA": "0",
        "DAYBOOK_PROJECTION_INSTANCE": "0",
        # of both sites: clients take their keys along
        "DAYBOOK_HASH_KEY": kept_secret(home_settings(settings).home / "hash-key"),
        "PYTHONUNBUFFERED": "1",
    }
    fixed = {
        "DAYBOOK_HTTP_HOST": HOST,
        "DAYBOOK_HTTP_PORT": str(settings.port(name)),
        "DAYBOOK_HOME": str(settings.home.absolute()),
        "DAYBOOK_PORT_BASE": str(settings.port_base),
        "DAYBOOK_SITE": settings.site,
    }
    return {**tunable, **os.environ, **fixed, **addresses(settings)}


def log_file(settings: StackSettings, name: str) -> Path:
    """Where a process's output goes."""
    return settings.logs / f"{name}.log"
