"""HTTP to this machine's own processes: one client for the whole process.

A client costs 30 ms of CPU, most of it for certificates; a request through it costs 1 ms. The first request imports
httpx, so that commands that send none start 0.2 s sooner.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


@cache
def local_http() -> httpx.Client:
    """A client that several threads may use. It uses no proxy and keeps no connection open: processes here restart."""
    import httpx

    return httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


def http_status(url: str, seconds: float) -> int | None:
    """The status of a GET; None where there is no response within `seconds`."""
    import httpx

    try:
        return local_http().get(url, timeout=seconds).status_code
    except httpx.HTTPError:
        return None
