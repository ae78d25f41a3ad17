"""What a guard measures each second: how far the mirror is, for the read side, operators and Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import asyncpg
import structlog
from prometheus_client import Gauge

from infra.dr.canary import EVERY_SECONDS, CanarySender, CanaryWatch
from infra.dr.mirror_position import MirrorMeter
from infra.dr.pulse import MirrorPulse
from infra.log.asking import Address
from services.kernel.log.control import Control

LAG_SECONDS = 5.0
COUNTED_EVENTS = 5_000  # above that a mirror's lag is bounded, not counted, each second

DELAY = Gauge("daybook_mirror_delay_seconds", "From the other site's commit to this one's, by the canary")
LAG = Gauge("daybook_mirror_lag_events", "Committed at the other site and not yet here")

_ROW = """
INSERT INTO site (site, role, epoch, mirror_events, mirror_seconds, observed_at)
VALUES ($1, $2, $3, $4, $5, now())
ON CONFLICT (site) DO UPDATE SET role = excluded.role, epoch = excluded.epoch,
    mirror_events = excluded.mirror_events, mirror_seconds = excluded.mirror_seconds, observed_at = now()"""

log = structlog.get_logger()


class Measure:
    """Each second: a canary from the active site; at the passive one the mirror's lag; a row either way."""

    def __init__(
        self,
        site: Address,
        other: Address,
        pulse: MirrorPulse,
        control: Callable[[], Control | None],
        database_url: str,
    ) -> None:
        self._site, self._other = site, other
        self._control, self._database_url = control, database_url
        self._sender = CanarySender(site.bootstrap, site.name)
        self._canaries = CanaryWatch(site.bootstrap, site.name, pulse.beat)
        self._meter: MirrorMeter | None = None
        self._metered_epoch = 0
        self._connection: asyncpg.Connection | None = None

    async def run(self) -> None:
        """For ever."""
        while True:
            due = time.monotonic() + EVERY_SECONDS
            control = self._control()
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
            self._meter = MirrorMeter(self._other.bootstrap, self._site.bootstrap, self._other.name)
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
