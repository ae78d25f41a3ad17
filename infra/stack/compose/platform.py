"""The platform of containers: `docker compose` starts them, and the engine keeps them running.

The shop's containers are named after its processes, those of the second site with `away-` before it. A process
that is held down is listed in the journal of its site's folder, which the mirrors' containers see.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import msgspec

from infra.base.settings import StackSettings
from infra.stack.compose.engine import CLUSTER_NODES, USERS, Container, await_fine, containers, quietly
from infra.stack.compose.further import write_further
from infra.stack.mirror_settings import FRESH_SECONDS, canary_age
from infra.stack.platform import Platform, SiteProcess
from infra.stack.shop import MIRROR, NAMES, SITE_NAMES, instances, kind_of
from infra.stack.site import AWAY, HOME, Site, away_settings, home_settings

# A site exists, and has a log, if one of these does.
BROKERS = ("broker", *CLUSTER_NODES[:3])
# The first mirror was named before there was a second one.
MIRRORS = {HOME: "home-mirror", AWAY: "mirror"}
PROCESSES = (*NAMES, *SITE_NAMES, "storage")
# The repository is the registry of both sites.
OF_HOME_ALONE = ("registry",)
LOG_DISK, DATABASE_DISK = "/var/lib/kafka/data", "/var/lib/postgresql"


class ComposePlatform(Platform):
    """The containers of one project of compose."""

    def __init__(self, settings: StackSettings) -> None:
        self._settings = home_settings(settings)
        self._lock, self._began, self._listed = Lock(), 0.0, list[Container]()

    def sites(self) -> Mapping[str, Site]:
        services = {container.service for container in self._list()}
        every = (Site(self._settings), Site(away_settings(self._settings)))
        # a site that is being rebuilt has no broker for a moment
        signs = (*BROKERS, "order-api")
        return {site.name: site for site in every if services & {_prefix(site) + name for name in signs}}

    def up(self, site: Site) -> bool:
        brokers = [_prefix(site) + name for name in BROKERS]
        return any(own.service in brokers and own.state == "running" for own in self._list())

    def processes(self, site: Site) -> Mapping[str, SiteProcess]:
        by_name, held = self._containers(site), site.journal.held()
        processes = {}
        for name, container in by_name.items():
            running = container.state == "running" and name not in held
            # the engine checks only from time to time, and a mirror that runs may copy nothing
            copies = name != MIRROR or (running and canary_age(site.bootstrap) < FRESH_SECONDS)
            ready = running and container.fine and copies
            processes[name] = SiteProcess(name, running, ready, container.started)
        return processes

    def start(self, site: Site, *names: str) -> None:
        up = bool(names) and self.up(site)
        if up and MIRROR in names:  # its settings anew before it runs, but no other step of a start
            self._compose("run", "--rm", "--no-deps", f"{MIRRORS[site.name]}-settings")
        for name in names:
            site.journal.release(name)
        if not names:
            services = _services(site, _names(site))
            self._compose("up", "--detach", *services)
            await_fine(self._settings, services)
        elif up:
            self._compose("up", "--detach", "--no-deps", *_services(site, names))

    def stop(self, site: Site, *names: str) -> None:
        for name in names:
            site.journal.keep_down(name)
        if not names:
            self._compose("stop", *_services(site, _names(site)))

    def scale(self, site: Site, kind: str, count: int) -> None:
        """Remove superfluous containers and start further ones. Each step may be repeated after an interruption."""
        site.journal.scale(kind, count)
        names = instances(kind, count)
        superfluous = [
            container.name
            for container in self._list()
            if kind_of(container.service) == kind and container.service not in names
        ]
        for name in superfluous:
            self._docker("stop", name)
            self._docker("rm", name)
        write_further(self._settings.home, site.journal.counts())
        if further := names[1:]:
            self._compose("up", "--detach", "--no-deps", *further)

    def kill(self, site: Site, name: str) -> None:
        container = self._containers(site).get(name)
        if container is None or container.state != "running":
            return
        self._docker("kill", container.name)
        if name not in site.journal.held():
            # the engine does not restart what `docker kill` has ended
            self._docker("start", container.name)

    def kill_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        self._call_each(site, names, after_each, "kill")

    def pause_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        self._call_each(site, names, after_each, "pause")

    def resume_site(self, site: Site) -> None:
        paused = [
            container.name for container in self._containers(site).values() if container.state == "paused"
        ]
        if paused:
            self._docker("unpause", *paused)

    def has_log(self, site: Site) -> bool:
        return "broker" in self._containers(site)

    @contextmanager
    def broker_alone(self, site: Site) -> Iterator[str]:
        nodes, (step, proof) = _services(site, _nodes(site)), _services(site, ["topics", "controller-proof"])
        # empty brokers find their controllers only when the voters are in the log
        started = [*nodes, *([proof] if len(nodes) > 1 else [])]
        self._compose("up", "--detach", *started)
        try:
            await_fine(self._settings, nodes)
            if self._settings.secured:  # an empty one has no users
                self._compose("run", "--rm", "--no-deps", step, "infra.stack.compose.site_start", USERS)
            yield site.bootstrap
        finally:
            self._compose("stop", *started)

    def lose_disks(self, site: Site, kept: Path) -> None:
        by_name, volumes = self._containers(site), []
        disks = {**dict.fromkeys(_nodes(site), LOG_DISK), "postgres": DATABASE_DISK}
        for store, disk in disks.items():
            if store not in by_name:
                continue
            self._docker("cp", f"{by_name[store].name}:{disk}", str(kept / store))
            (state,) = msgspec.json.decode(self._docker("inspect", by_name[store].name))
            volumes += [mount["Name"] for mount in state["Mounts"] if mount["Destination"] == disk]
        # the probe of the disks mounts both, too
        self._compose("rm", "--force", "--stop", *_services(site, [*disks, "storage"]))
        self._docker("volume", "rm", *volumes)

    def destroy(self, site: Site) -> None:
        """The secrets of both sites are in the project's folder, which is on neither's disk."""
        with TemporaryDirectory() as folder:
            self.lose_disks(site, Path(folder))

    def _call_each(self, site: Site, names: Sequence[str], after_each: Callable[[], None], verb: str) -> None:
        by_name = self._containers(site)
        for name in names:
            self._docker(verb, by_name[name].name)
            after_each()

    def _list(self) -> list[Container]:
        """All containers. Calls that wait for each other share a listing that began after them."""
        called = time.monotonic()
        with self._lock:
            if self._began < called:
                self._began, self._listed = time.monotonic(), containers(self._settings)
            return self._listed

    def _containers(self, site: Site) -> dict[str, Container]:
        """The containers of the site's processes, by the process's name."""
        by_service = {container.service: container for container in self._list()}
        services = dict(zip(_names(site), _services(site, _names(site)), strict=True))
        return {name: by_service[service] for name, service in services.items() if service in by_service}

    def _compose(self, *arguments: str) -> None:
        quietly(self._settings, "docker", "compose", *arguments)

    def _docker(self, *arguments: str) -> str:
        return quietly(self._settings, "docker", *arguments)


def _names(site: Site) -> list[str]:
    further = [name for kind, count in site.journal.counts().items() for name in instances(kind, count)[1:]]
    own = [name for name in PROCESSES if site.name == HOME or name not in OF_HOME_ALONE]
    return [*own, *_nodes(site)[1:], *further]


def _nodes(site: Site) -> list[str]:
    """Those of Kafka: the lone broker, or three brokers and three controllers."""
    kinds = ("broker", "controller") if site.settings.brokers > 1 else ("broker",)
    return [name for kind in kinds for name in site.settings.nodes(kind)]


def _services(site: Site, names: Sequence[str]) -> list[str]:
    """The names of these processes in the compose files."""
    nodes = _nodes(site)
    own = dict(zip(nodes, CLUSTER_NODES, strict=True)) if len(nodes) > 1 else {}
    return [MIRRORS[site.name] if name == MIRROR else _prefix(site) + own.get(name, name) for name in names]


def _prefix(site: Site) -> str:
    return "" if site.name == HOME else f"{site.name}-"
