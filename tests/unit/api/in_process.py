"""One request to an ASGI application, without a server or a client between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True)
class AppResponse:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


async def send_request(
    app: Any,
    method: str,
    path: str,
    query: str = "",
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
) -> AppResponse:
    """What the application sends; the body is JSON."""
    given = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"test"), (b"content-type", b"application/json"), *given],
        "server": ("test", 80),
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        sent.append(event)

    await app(scope, receive, send)
    return AppResponse(
        sent[0]["status"], sent[0]["headers"], b"".join(event.get("body", b"") for event in sent[1:])
    )
