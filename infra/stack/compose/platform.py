"""The platform of containers: the engine keeps them running, `docker compose` starts them.

The shop's containers are named after its processes, those of the second site with `away-` before it. A process
that is held down is listed in the journal of its site's folder, which the mirrors' containers see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra.base.settings import StackSettings
from infra.stack.compose.engine import Container, await_fine, containers, quietly
from infra.stack.mirror_settings import FRESH_SECONDS, canary_age
from infra.stack.platform import Platform, SiteProcess
from infra.stack.shop import MIRROR, NAMES, SITE_NAMES, STORES
from infra.stack.site import AWAY, HOME, Site, away_settings, home_settings

# Those whose absence is the site's, and that of its log.
BROKERS = {HOME: ("broker", "broker-1", "broker-2", "broker-3"), AWAY: ("away-broker",)}
# The first mirror had its name before there was a second one.
MIRRORS = {HOME: "home-mirror", AWAY: "mirror"}
PROCESSES = (*NAMES, *SITE_NAMES, "storage")
# The repository is the registry of both sites.
OF_HOME_ALONE = ("registry",)
DISKS = {"broker": "/var/lib/kafka/data", "postgres": "/var/lib/postgresql"}


class ComposePlatform(Platform):
    """The containers of one project of compose."""

    def __init__(self, settings: StackSettings) -> None:
        self._settings = home_settings(settings)

    def sites(self) -> Mapping[str, Site]:
        services = {one.service for one in containers(self._settings)}
        every = (Site(HOME, self._settings), Site(AWAY, away_settings(self._settings)))
        return {site.name: site for site in every if services.intersection(BROKERS[site.name])}

    def up(self, site: Site) -> bool:
        found = containers(self._settings)
        return any(one.service in BROKERS[site.name] and one.state == "running" for one in found)

    def processes(self, site: Site) -> Mapping[str, SiteProcess]:
        found, held = self._containers(site), site.journal.held()
        lives = self._lives(found.values())
        processes = {}
        for name, one in found.items():
            running = one.state == "running" and name not in held
            # the engine looks now and then only, and a mirror that runs may copy nothing
            copies = name != MIRROR or (running and canary_age(site.bootstrap) < FRESH_SECONDS)
            processes[name] = SiteProcess(name, running, running and one.fine and copies, lives[one.name])
        return processes

    def held(self, site: Site) -> Collection[str]:
        return site.journal.held()

    def start(self, site: Site, *names: str) -> None:
        for name in names:
            site.journal.release(name)
        if not names:
            services = _services(site, _names(site))
            self._compose("up", "--detach", *services)
            await_fine(self._settings, services)
        elif self.up(site):
            self._compose("up", "--detach", *_services(site, names))

    def stop(self, site: Site, *names: str) -> None:
        for name in names:
            site.journal.hold(name)
        if not names:
            self._compose("stop", *_services(site, _names(site)))

    def kill(self, site: Site, name: str) -> None:
        one = self._containers(site).get(name)
        if one is None or one.state != "running":
            return
        self._docker("kill", one.name)
        if name not in self.held(site):
            # the engine leaves alone what `docker kill` has ended
            self._docker("start", one.name)

    def kill_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        self._each(site, names, after_each, "kill")

    def pause_site(self, site: Site, names: Sequence[str], after_each: Callable[[], None]) -> None:
        self._each(site, names, after_each, "pause")

    def resume_site(self, site: Site) -> None:
        paused = [one.name for one in self._containers(site).values() if one.state == "paused"]
        self._docker("unpause", *paused)

    def has_log(self, site: Site) -> bool:
        return "broker" in self._containers(site)

    @contextmanager
    def broker_alone(self, site: Site) -> Iterator[str]:
        (broker,) = _services(site, ["broker"])
        self._compose("up", "--detach", "--no-deps", broker)
        await_fine(self._settings, [broker])
        try:
            yield site.bootstrap
        finally:
            self._compose("stop", broker)

    def lose_disks(self, site: Site, kept: Path) -> None:
        found, volumes = self._containers(site), []
        for store in STORES:
            if store not in found:
                continue
            self._docker("cp", f"{found[store].name}:{DISKS[store]}", str(kept / store))
            (said,) = msgspec.json.decode(self._docker("inspect", found[store].name))
            volumes += [each["Name"] for each in said["Mounts"] if each["Destination"] == DISKS[store]]
        # the probe of the disks has both, too
        self._compose("rm", "--force", "--stop", *_services(site, [*STORES, "storage"]))
        self._docker("volume", "rm", *volumes)

    def _each(self, site: Site, names: Sequence[str], after_each: Callable[[], None], verb: str) -> None:
        found = self._containers(site)
        for name in names:
            self._docker(verb, found[name].name)
            after_each()

    def _containers(self, site: Site) -> dict[str, Container]:
        """Those of the site's processes that exist, by the process's name."""
        by_service = {one.service: one for one in containers(self._settings)}
        services = dict(zip(_names(site), _services(site, _names(site)), strict=True))
        return {name: by_service[service] for name, service in services.items() if service in by_service}

    def _lives(self, found: Collection[Container]) -> dict[str, str]:
        """When each container was started last, by its name."""
        names = [one.name for one in found]
        if not names:
            return {}
        said = msgspec.json.decode(self._docker("inspect", *names))
        return {each["Name"].removeprefix("/"): each["State"]["StartedAt"] for each in said}

    def _compose(self, *arguments: str) -> None:
        quietly(self._settings, "docker", "compose", *arguments)

    def _docker(self, *arguments: str) -> str:
        return quietly(self._settings, "docker", *arguments)


def _names(site: Site) -> list[str]:
    return [name for name in PROCESSES if site.name == HOME or name not in OF_HOME_ALONE]


def _services(site: Site, names: Sequence[str]) -> list[str]:
    """The names of these processes in the compose files."""
    prefix = "" if site.name == HOME else f"{site.name}-"
    return [MIRRORS[site.name] if name == MIRROR else f"{prefix}{name}" for name in names]
