"""`python -m infra.dr.guard`: watches the other site and the mirror, stands down for a later epoch."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import Any

import structlog
from confluent_kafka import KafkaException
from fastapi import APIRouter
from prometheus_client import Gauge
from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.responses import JSONResponse, Response

from contracts.kernel.records import SiteRole
from infra.dr.metering import Measure
from infra.dr.pulse import MirrorPulse
from infra.log.asking import Address, ControlReader, SiteSilent
from infra.log.control import lift_hold, stand_down, write_role
from services.edge.app import api_router, application
from services.edge.json_logs import configure_logging
from services.edge.server import end_process, serve
from services.kernel.log.control import Control
from services.kernel.log.transactions import OwnershipLost

# A folder of files, each named as a variable and read where that is not set: how containers get secrets.
SECRETS = os.environ.get("DAYBOOK_SECRETS")
WATCH_SECONDS = 0.5
SILENT_SECONDS = 10.0

EPOCH = Gauge("daybook_site_epoch", "The site's write epoch")
ACTIVE = Gauge("daybook_site_active", "1 where the site is the active one")

log = structlog.get_logger()


class GuardSettings(BaseSettings):
    """Environment variables: DAYBOOK_ before each. `peer` is the other site's name, `peer_kafka` where its
    broker answers this site."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True, secrets_dir=SECRETS)

    site: str = "home"
    kafka: str
    peer: str
    peer_kafka: str
    http_host: str = "127.0.0.1"
    http_port: int = 27414
    database_url: str
    log_level: str = "INFO"


class SiteWatch:
    """Compares the two sites' epochs. `control` is what the own site said last."""

    def __init__(self, site: Address, other: Address) -> None:
        self._site = site
        self._own, self._peer = ControlReader(site.bootstrap), ControlReader(other.bootstrap)
        self.control: Control | None = None
        self.heard_at = 0.0
        self.pulse = MirrorPulse()

    def turn(self) -> None:
        """One look. Raises SiteSilent where the own broker does not answer; the other site may."""
        own = self._own.read()
        self.control, self.heard_at = own, time.monotonic()
        EPOCH.set(own.role.epoch)
        ACTIVE.set(own.role.role == "active")
        try:
            theirs = self._peer.read()
        except SiteSilent:
            self.pulse.expect(False)
            return
        self.pulse.expect(theirs.writing and own.role.role == "passive")
        if theirs.role.epoch > own.role.epoch:
            self._follow(own, theirs.role.epoch)
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


def _watch_for_ever(watch: SiteWatch) -> None:
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
    settings = GuardSettings()  # type: ignore[call-arg] # from the environment
    configure_logging("guard", settings.log_level)
    site, other = Address(settings.site, settings.kafka), Address(settings.peer, settings.peer_kafka)
    watch = SiteWatch(site, other)
    measure = Measure(site, other, watch.pulse, lambda: watch.control, settings.database_url)
    for name, work, of in (("watch", _watch_for_ever, watch), ("measure", _measure_for_ever, measure)):
        threading.Thread(target=_or_end, args=(work, of), name=name, daemon=True).start()
    app = application([_mirror_health(watch.pulse)], watch.not_ready)
    return serve(app, settings.http_host, settings.http_port)


def _mirror_health(pulse: MirrorPulse) -> APIRouter:
    """503 where the mirror runs, perhaps, and copies nothing."""
    router = api_router(include_in_schema=False)

    @router.get("/health/mirror")
    async def mirror() -> Response:
        silent = pulse.stopped_for()
        status = "copies" if silent is None else f"nothing came for {silent:.0f} s"
        return JSONResponse({"status": status}, 200 if silent is None else 503)

    return router


def _or_end(work: Any, of: Any) -> None:
    """A guard with half its work is none: the process ends, and the supervisor starts it anew."""
    try:
        work(of)
    except Exception as error:
        log.exception("guard_failed")
        end_process(repr(error))


if __name__ == "__main__":
    sys.exit(main())
