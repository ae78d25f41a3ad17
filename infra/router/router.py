"""`python -m infra.router.router`: an address for each API that follows the active site (ADR 26).

It reads both sites' `site.control` all the time. A site that is silent keeps the role that it had.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI
from prometheus_client import Gauge
from pydantic import BaseModel
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.kernel.records import SiteRole
from infra.log.control import READ_SECONDS
from infra.router.relay import ClientConnection, Relay, Target
from services.edge.app import health_application
from services.edge.json_logs import configure_logging
from services.edge.server import end_process, serve
from services.kernel.log.control import Control, ControlSource
from services.kernel.log.reader import NotKnown

FOLLOW_SECONDS, SWEEP_SECONDS = 0.2, 1.0
EPOCH = Gauge("daybook_router_epoch", "The epoch of the site that requests go to; 0 while there is none")
HEARD = Gauge("daybook_router_heard_timestamp_seconds", "When the site's broker responded last", ["site"])


class Route(BaseModel, frozen=True):
    """The port of an API's address, and the API's `host:port` at each site. `reads`: it changes nothing."""

    port: int
    targets: Mapping[str, str]
    reads: bool = False


class RouterSettings(BaseSettings):
    """Environment variables: DAYBOOK_ before each. `router_sites`: each site's broker; `routes` by API. As JSON.
    `http_host`: where the addresses of the APIs are."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    router_sites: Mapping[str, str]
    router_routes: Mapping[str, Route]
    http_host: str = "127.0.0.1"
    health_host: str = "127.0.0.1"
    health_port: int = 27416
    log_level: str = "INFO"


class ActiveSite:
    """The active site of the highest epoch ever seen; None while there is none, as in the middle of a switchover.

    A site that was replaced is never chosen again in its old epoch. `last` was active last: reads go on there.
    """

    def __init__(self) -> None:
        self._roles: dict[str, SiteRole] = {}
        self.epoch = 0
        self.name: str | None = None
        self.last: str | None = None

    def learn(self, site: str, role: SiteRole) -> None:
        """Take the role that the site has now."""
        self._roles[site] = role
        active = {role.epoch: name for name, role in self._roles.items() if role.role == "active"}
        self.epoch = max(self.epoch, *active, 0)
        self.name = active.get(self.epoch)
        self.last = self.name or self.last


class Router:
    """The relays of all APIs. `lifespan` is that of the process's application."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._active = ActiveSite()
        self._relays = {api: Relay(api) for api in settings.router_routes}

    def not_ready(self) -> str | None:
        return None if self._active.name else "no site is active"

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        works = [self._sweep(), *(self._follow(*site) for site in self._settings.router_sites.items())]
        tasks = [asyncio.create_task(work) for work in works]
        for task in tasks:
            task.add_done_callback(_end_with)
        async with AsyncExitStack() as servers:
            for api, route in self._settings.router_routes.items():
                accept = partial(ClientConnection, self._relays[api])
                server = await asyncio.get_running_loop().create_server(
                    accept, self._settings.http_host, route.port
                )
                servers.callback(server.close)
            yield
        for task in tasks:
            task.cancel()
        for relay in self._relays.values():
            relay.move(None)

    async def _follow(self, site: str, bootstrap: str) -> None:
        source = ControlSource(bootstrap)
        while True:
            try:
                control = await asyncio.to_thread(source.read, READ_SECONDS)
            except NotKnown:
                control = Control()
            if control.named:
                HEARD.labels(site).set_to_current_time()
                self._learn(site, control.role)
            await asyncio.sleep(FOLLOW_SECONDS)

    def _learn(self, site: str, role: SiteRole) -> None:
        self._active.learn(site, role)
        EPOCH.set(self._active.epoch if self._active.name else 0)
        for api, route in self._settings.router_routes.items():
            name = self._active.last if route.reads else self._active.name
            self._relays[api].move(_target(route.targets[name]) if name else None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for relay in self._relays.values():
                relay.sweep()


def _target(address: str) -> Target:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _end_with(task: asyncio.Task[None]) -> None:
    """The process ends with any of its tasks, and is started again."""
    if not task.cancelled():
        end_process(repr(task.exception()))


def main() -> int:
    """The process's exit code."""
    settings = RouterSettings()  # type: ignore[call-arg] # from the environment
    configure_logging("router", settings.log_level)
    router = Router(settings)
    app = health_application(router.not_ready, lifespan=router.lifespan)
    return serve(app, settings.health_host, settings.health_port)


if __name__ == "__main__":
    sys.exit(main())
