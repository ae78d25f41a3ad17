"""Where an answer comes from: the headers Daybook-Site, Daybook-Role and Daybook-Lag-Seconds."""

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
# The guard writes its row each second. One that is older says less the older it is, and then nothing.
GUARD_SECONDS = 10.0
_STANDING = """
SELECT role, mirror_seconds, extract(epoch FROM now() - observed_at)::float8 - 1 AS silent
FROM (VALUES ($1::text)) AS own(site) LEFT JOIN site USING (site)"""

log = structlog.get_logger(__name__)


class Standing:
    """What is known of this site; `behind` is how many seconds its read models are, None where not known."""

    def __init__(self, site: str, behind: Callable[[], float | None]) -> None:
        self._site, self._behind = site, behind
        self._role: bytes | None = None
        self._mirror: float | None = 0.0
        self._heard = time.monotonic()

    def silent(self) -> float:
        """For how many seconds PostgreSQL has told nothing."""
        return time.monotonic() - self._heard

    async def follow(self, pool: asyncpg.Pool[Any]) -> None:
        """For ever."""
        while True:
            try:
                async with asyncio.timeout(QUERY_SECONDS):
                    self._hear(await pool.fetchrow(_STANDING, self._site))
                self._heard = time.monotonic()
            except (*DATABASE_AWAY, asyncpg.PostgresError) as error:
                log.warning("standing not known", error=repr(error))
            await asyncio.sleep(REFRESH_SECONDS)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What is not known has no header."""
        headers = [(b"daybook-site", self._site.encode())]
        if self._role is not None and self.silent() < GUARD_SECONDS:
            headers.append((b"daybook-role", self._role))
        behind, mirror = self._behind(), self._mirror
        if behind is None or mirror is None:
            return headers
        return [*headers, (b"daybook-lag-seconds", f"{behind + mirror:.3f}".encode())]

    def _hear(self, row: Any) -> None:
        """The mirror's part of the lag is 0 at an active site and where there is one site alone."""
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
    """ASGI middleware: the standing's headers on every answer."""

    def __init__(self, app: ASGIApp, standing: Standing) -> None:
        self._app, self._standing = app, standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(event: Message) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event.get("headers", ()), *self._standing.headers()]
            await send(event)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)
