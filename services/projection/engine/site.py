"""The site of a response: the headers Daybook-Site, Daybook-Role and Daybook-Lag-Seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.projection.engine.database import QUERY_SECONDS
from services.projection.engine.read_model import DATABASE_AWAY

REFRESH_SECONDS = 1.0
# The guard writes its row each second. A row older than this is ignored.
GUARD_SECONDS = 10.0
_STATUS = """
SELECT role, mirror_seconds, extract(epoch FROM now() - observed_at)::float8 - 1 AS silent
FROM (VALUES ($1::text)) AS own(site) LEFT JOIN site USING (site)"""

log = structlog.get_logger(__name__)


class SiteStatus:
    """The state of this site; `behind` returns the lag of its read models in seconds, None if unknown."""

    def __init__(self, site: str, behind: Callable[[], float | None]) -> None:
        self._site, self._behind = site, behind
        self._role: bytes | None = None
        self._mirror: float | None = 0.0
        self._responded_at = time.monotonic()

    def silent(self) -> float:
        """Returns for how many seconds PostgreSQL has not responded."""
        return time.monotonic() - self._responded_at

    async def follow(self, pool: asyncpg.Pool[Any]) -> None:
        """Updates the status until cancelled."""
        while True:
            try:
                async with asyncio.timeout(QUERY_SECONDS):
                    self._update(await pool.fetchrow(_STATUS, self._site))
                self._responded_at = time.monotonic()
            except (*DATABASE_AWAY, asyncpg.PostgresError) as error:
                log.warning("site status not known", error=repr(error))
            await asyncio.sleep(REFRESH_SECONDS)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers; an unknown value has none."""
        headers = [(b"daybook-site", self._site.encode())]
        if self._role is not None and self.silent() < GUARD_SECONDS:
            headers.append((b"daybook-role", self._role))
        behind, mirror = self._behind(), self._mirror
        if behind is None or mirror is None:
            return headers
        return [*headers, (b"daybook-lag-seconds", f"{behind + mirror:.3f}".encode())]

    def _update(self, row: Any) -> None:
        """Sets role and mirror lag; the mirror lag is 0 at an active site and with one site."""
        self._role, self._mirror = None, 0.0
        if row["role"] is None:
            return
        if row["silent"] > GUARD_SECONDS:
            self._mirror = None
            return
        self._role = row["role"].encode()
        if row["role"] == "passive":
            mirror = row["mirror_seconds"]
            self._mirror = None if mirror is None else mirror + max(0.0, row["silent"])


class SiteHeaders:
    """ASGI middleware: adds the site's headers to every response."""

    def __init__(self, app: ASGIApp, status: SiteStatus) -> None:
        self._app, self._status = app, status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(event: Message) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event.get("headers", ()), *self._status.headers()]
            await send(event)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
