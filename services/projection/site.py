"""Where an answer comes from: the headers Daybook-Site, Daybook-Role and Daybook-Lag-Seconds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REFRESH_SECONDS = 1.0
# The guard writes its row each second: one that is older says less the older it is.
_STANDING = """
SELECT s.role, s.mirror_seconds, extract(epoch FROM now() - s.observed_at)::float8 - 1 AS silent,
    (SELECT coalesce(max(seconds), 0) FROM lag) AS behind
FROM (VALUES ($1::text)) AS own(site) LEFT JOIN site s USING (site)"""

log = structlog.get_logger(__name__)


class Standing:
    """What is known of this site; `headers` is replaced as a whole."""

    def __init__(self, site: str) -> None:
        self._site = site
        self.headers: list[tuple[bytes, bytes]] = [(b"daybook-site", site.encode())]
        self._heard = time.monotonic()

    def silent(self) -> float:
        """For how many seconds PostgreSQL has told nothing."""
        return time.monotonic() - self._heard

    async def follow(self, pool: asyncpg.Pool[Any]) -> None:
        """For ever. While PostgreSQL is away the headers stay as they were."""
        while True:
            try:
                self.headers = self._told(await pool.fetchrow(_STANDING, self._site))
                self._heard = time.monotonic()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("standing not known", error=repr(error))
            await asyncio.sleep(REFRESH_SECONDS)

    def _told(self, row: Any) -> list[tuple[bytes, bytes]]:
        headers = [(b"daybook-site", self._site.encode())]
        if row["role"] is not None:
            headers.append((b"daybook-role", row["role"].encode()))
        mirror = row["mirror_seconds"]
        if row["role"] == "passive" and mirror is None:
            return headers  # nothing has come over yet: the lag is not known
        seconds = row["behind"] + (mirror + max(0.0, row["silent"]) if row["role"] == "passive" else 0.0)
        return [*headers, (b"daybook-lag-seconds", f"{seconds:.3f}".encode())]


class SiteHeaders:
    """ASGI middleware: the standing's headers on every answer."""

    def __init__(self, app: ASGIApp, standing: Standing) -> None:
        self._app, self._standing = app, standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(event: Message) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event.get("headers", ()), *self._standing.headers]
            await send(event)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)
