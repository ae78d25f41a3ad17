"""`python -m infra.dr.guard`: watches the other site and the mirror, and demotes its site for a later epoch.

It also measures the mirror each second (`infra/dr/mirror_watch.py`) and returns the result at `GET /mirror`.
"""

import asyncio
import sys
import threading
import time

import msgspec
import structlog
from confluent_kafka import KafkaException
from fastapi import APIRouter
from prometheus_client import REGISTRY, Gauge
from starlette.responses import JSONResponse, Response

from contracts.kernel.records import SiteRole
from infra.base.settings import FromEnvironment
from infra.dr.mirror_watch import Measure, MirrorMetrics, MirrorPulse
from infra.log.control import (
    READ_SECONDS,
    Address,
    fence_slots,
    lift_alone,
    lift_hold,
    stand_down,
    write_lease,
    write_role,
)
from infra.stack.start import lost_log
from services.edge.app import api_router, health_application
from services.edge.json_logs import configure_logging
from services.edge.server import serve
from services.kernel.log.control import Control, ControlSource
from services.kernel.log.proof import claimed_epoch
from services.kernel.log.reader import NotKnown
from services.kernel.log.transactions import OwnershipLost
from services.kernel.threads import end_with_threads

WATCH_SECONDS = 0.5
SILENT_SECONDS = 10.0

EPOCH = Gauge("daybook_site_epoch", "The site's write epoch")
ACTIVE = Gauge("daybook_site_active", "1 where the site is the active one")

log = structlog.get_logger()


class GuardSettings(FromEnvironment):
    """`peer` is the other site, `peer_kafka` the address of its brokers for this one."""

    site: str = "home"
    kafka: str
    peer: str
    peer_kafka: str
    health_host: str = "127.0.0.1"
    health_port: int = 27414
    database_url: str
    lease_seconds: int = 0
    log_level: str = "INFO"


class SiteWatch:
    """Compares the epochs of both sites. `control` has the own site's records as they were read last.

    `lease_seconds` is what the own site grants to the other one: see `SiteLease`.
    """

    def __init__(self, site: Address, other: Address, lease_seconds: int) -> None:
        self._site, self._other, self._lease_seconds = site, other, lease_seconds
        self._own, self._peer = ControlSource(site.bootstrap), ControlSource(other.bootstrap)
        self.control: Control | None = None
        self._unfenced = False
        self.heard_at = 0.0
        self.pulse = MirrorPulse()

    def check(self) -> None:
        """Read both sites once. Raises NotKnown where the own broker does not respond."""
        own = self._own.read(READ_SECONDS)
        self.control, self.heard_at = own, time.monotonic()
        EPOCH.set(own.role.epoch)
        ACTIVE.set(own.role.role == "active")
        if self._unfenced and own.role.role == "passive":
            fence_slots(self._site.bootstrap)
            self._unfenced = False
        if own.lease_seconds != self._lease_seconds:
            write_lease(self._site.bootstrap, self._lease_seconds)
        try:
            theirs = self._peer.read(READ_SECONDS)
        except NotKnown:
            self.pulse.expect(False)
            return
        self.pulse.expect(theirs.writing and own.role.role == "passive")
        if theirs.role.epoch > own.role.epoch:
            self._follow(own, theirs.role.epoch)
        elif claimed_epoch(theirs) <= own.role.epoch:
            self._together(own)

    def _together(self, own: Control) -> None:
        """The other site responds, and is not being promoted."""
        if own.held == "unproven":
            if lost_log(self._site, self._other):
                log.error("no_log", other=self._other.name)
                return
            lift_hold(self._site.bootstrap)
            log.info("proven", epoch=own.role.epoch)
        if own.alone:
            lift_alone(self._site.bootstrap)
            log.info("not_alone", epoch=own.role.epoch)

    def _follow(self, own: Control, epoch: int) -> None:
        """The other site was promoted."""
        if own.role.role == "active":
            # The broker may fail between the role and the fence, and no role is followed twice.
            self._unfenced = True
            stand_down(self._site.bootstrap, self._site.name, epoch)
            self._unfenced = False
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
            watch.check()
        except (NotKnown, TimeoutError, KafkaException, OwnershipLost) as reason:
            log.warning("own_site_silent", reason=str(reason))
        time.sleep(WATCH_SECONDS)


def main() -> int:
    """The process's exit code."""
    settings = GuardSettings()  # type: ignore[call-arg] # from the environment
    configure_logging("guard", settings.log_level)
    end_with_threads()
    site, other = Address(settings.site, settings.kafka), Address(settings.peer, settings.peer_kafka)
    watch = SiteWatch(site, other, settings.lease_seconds)
    measure = Measure(site, other, watch.pulse, lambda: watch.control, settings.database_url)
    threading.Thread(target=_watch_for_ever, args=(watch,), name="watch", daemon=True).start()
    threading.Thread(target=asyncio.run, args=(measure.run(),), name="measure", daemon=True).start()
    REGISTRY.register(MirrorMetrics(measure.status))
    app = health_application(watch.not_ready, _mirror_routes(watch.pulse, measure))
    return serve(app, settings.health_host, settings.health_port)


def _mirror_routes(pulse: MirrorPulse, measure: Measure) -> APIRouter:
    """The mirror's state as JSON; and its health, 503 where it copies nothing, even if it runs."""
    router = api_router(include_in_schema=False)

    @router.get("/mirror")
    async def status() -> Response:
        return Response(msgspec.json.encode(measure.status()), media_type="application/json")

    @router.get("/health/mirror")
    async def health() -> Response:
        silent = pulse.stopped_for()
        status = "copies" if silent is None else f"nothing came for {silent:.0f} s"
        return JSONResponse({"status": status}, 200 if silent is None else 503)

    return router


if __name__ == "__main__":
    sys.exit(main())
