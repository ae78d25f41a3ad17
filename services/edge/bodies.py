"""Reads request bodies up to a limit."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from services.edge.problems import Problem

MAX_BODY_BYTES = 1024 * 1024
MAX_DISCARDED_BYTES = 4 * MAX_BODY_BYTES


async def read_body(receive: Receive) -> bytes:
    """Returns the whole body. Raises `Problem` 413 above `MAX_BODY_BYTES`, `ClientDisconnect` if it is cut off."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more and size <= MAX_DISCARDED_BYTES:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = event.get("body", b"")
        more = event.get("more_body", False)
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            chunks.append(chunk)
    if size > MAX_BODY_BYTES:
        # A client that still sends would not read the response: read and discard a little more.
        raise body_too_large()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def body_too_large() -> Problem:
    detail = f"a body may have at most {MAX_BODY_BYTES:,} bytes"
    return Problem(413, "body_too_large", detail, headers={"Connection": "close"})
