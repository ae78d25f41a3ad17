"""`python -m infra.sites.guard`: watches the other site, stands down for a later epoch, meters the mirror."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import asyncpg
import structlog
from confluent_kafka import KafkaException
from prometheus_client import Gauge
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.kernel.records import SiteRole
from infra.settings import StackSettings
from infra.sites.asking import ControlReader, SiteSilent
from infra.sites.canary import EVERY_SECONDS, CanarySender, CanaryWatch
from infra.sites.control import lift_hold, stand_down, write_role
from infra.sites.mirror_position import MirrorMeter
from infra.sites.site import Site, own_site, peer
from services.edge.serving import application, configure_logging, end_process, serve
from services.kernel.control import Control
from services.kernel.transactions import OwnershipLost

WATCH_SECONDS = 0.5
SILENT_SECONDS = 10.0
LAG_SECONDS = 5.0
COUNTED_EVENTS = 5_000  # above that a mirror's lag is bounded, not counted, each second

DELAY = Gauge("daybook_mirror_delay_seconds", "From the other site's commit to this one's, by the canary")
LAG = Gauge("daybook_mirror_lag_events", "Committed at the other site and not yet here")
EPOCH = Gauge("daybook_site_epoch", "The site's write epoch")
ACTIVE = Gauge("daybook_site_active", "1 where the site is the active one")

_ROW = """
INSERT INTO site (site, role, epoch, mirror_events, mirror_seconds, observed_at)
VALUES ($1, $2, $3, $4, $5, now())
ON CONFLICT (site) DO UPDATE SET role = excluded.role, epoch = excluded.epoch,
    mirror_events = excluded.mirror_events, mirror_seconds = excluded.mirror_seconds, observed_at = now()"""

log = structlog.get_logger()


class GuardSettings(BaseSettings):
    """Environment variables: DAYBOOK_ before DATABASE_URL, HTTP_HOST, HTTP_PORT, LOG_LEVEL."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    http_host: str = "127.0.0.1"
    http_port: int = 27414
    database_url: str
    log_level: str = "INFO"


class Watch:
    """Compares the two sites' epochs. `control` is what the own site said last."""

    def __init__(self, site: Site, other: Site) -> None:
        self._site, self._other = site, other
        self._own, self._peer = ControlReader(site.bootstrap), ControlReader(other.link)
        self.control: Control | None = None
        self.heard_at = 0.0

    def turn(self) -> None:
        """One look. Raises SiteSilent where the own broker does not answer; the other site may."""
        own = self._own.read()
        self.control, self.heard_at = own, time.monotonic()
        EPOCH.set(own.role.epoch)
        ACTIVE.set(own.role.role == "active")
        try:
            theirs = self._peer.read().role
        except SiteSilent:
            return
        if theirs.epoch > own.role.epoch:
            self._follow(own, theirs.epoch)
        elif own.held == "unproven":
            lift_hold(self._site.bootstrap)
            log.info("proven", epoch=own.role.epoch)

    def _follow(self, own: Control, epoch: int) -> None:
        """The other site was promoted."""
        if own.role.role == "active":
            stand_down(self._site.bootstrap, self._site.name, epoch)
            log.warning("stood_down", was=own.role.epoch, epoch=epoch)
        else:
            write_role(self._site.bootstrap, SiteRole(self._site.name, "passive", epoch))
            log.info("epoch", epoch=epoch)

    def not_ready(self) -> str | None:
        silent = time.monotonic() - self.heard_at
        return None if silent < SILENT_SECONDS else "the site's broker does not answer"


class Measure:
    """Each second: a canary from the active site; at the passive one the mirror's lag; a row either way."""

    def __init__(self, site: Site, other: Site, watch: Watch, database_url: str) -> None:
        self._site, self._other = site, other
        self._watch, self._database_url = watch, database_url
        self._sender = CanarySender(site.bootstrap, site.name)
        self._canaries = CanaryWatch(site.bootstrap, site.name)
        self._meter: MirrorMeter | None = None
        self._metered_epoch = 0
        self._connection: asyncpg.Connection | None = None

    async def run(self) -> None:
        """For ever."""
        while True:
            due = time.monotonic() + EVERY_SECONDS
            control = self._watch.control
            if control is not None:
                if control.writing:
                    self._sender.send(control.role.epoch)
                await self._row(control)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _row(self, control: Control) -> None:
        events, seconds = None, None
        if control.role.role == "passive":
            lag = await asyncio.to_thread(self._lag, control.role.epoch)
            events, seconds = lag, self._canaries.delay()
        DELAY.set(float("nan") if seconds is None else seconds)
        LAG.set(float("nan") if events is None else events)
        row = (self._site.name, control.role.role, control.role.epoch, events, seconds)
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._database_url, timeout=5, command_timeout=5)
            await self._connection.execute(_ROW, *row)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            # Before the first migration, or while PostgreSQL is away; the next second tries again.
            log.warning("row_not_written", reason=repr(error))

    def _lag(self, epoch: int) -> int | None:
        """None where the other site cannot be asked.

        Each epoch and each silence has a meter of its own: the mirror, its positions or the whole other site
        may be new afterwards.
        """
        if self._meter is not None and epoch != self._metered_epoch:
            self._forget()
        if self._meter is None:
            self._meter = MirrorMeter(self._other.link, self._site.bootstrap, self._other.name)
            self._metered_epoch = epoch
        try:
            return self._meter.read(LAG_SECONDS, at_most=COUNTED_EVENTS).total
        except TimeoutError:
            self._forget()
            return None

    def _forget(self) -> None:
        if self._meter is not None:
            self._meter.close()
            self._meter = None


def _watch_for_ever(watch: Watch) -> None:
    while True:
        try:
            watch.turn()
        except (SiteSilent, TimeoutError, KafkaException, OwnershipLost) as reason:
            log.warning("own_site_silent", reason=str(reason))
        time.sleep(WATCH_SECONDS)


def _measure_for_ever(measure: Measure) -> None:
    asyncio.run(measure.run())


def main() -> int:
    """The process's exit code."""
    settings, stack = GuardSettings(), StackSettings()  # type: ignore[call-arg] # from the environment
    configure_logging("guard", settings.log_level)
    site, other = own_site(stack), peer(stack)
    if other is None:
        log.error("there is no other site to watch")
        return 2
    watch = Watch(site, other)
    measure = Measure(site, other, watch, settings.database_url)
    for name, work, of in (("watch", _watch_for_ever, watch), ("measure", _measure_for_ever, measure)):
        threading.Thread(target=_or_end, args=(work, of), name=name, daemon=True).start()
    serve(application((), watch.not_ready), settings.http_host, settings.http_port)
    return 0


def _or_end(work: Any, of: Any) -> None:
    """A guard with half its work is none: the process ends, and the supervisor starts it anew."""
    try:
        work(of)
    except Exception as error:
        log.exception("guard_failed")
        end_process(repr(error))


if __name__ == "__main__":
    sys.exit(main())
