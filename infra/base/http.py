"""HTTP to this machine's own processes: one client for the whole process.

The first request imports httpx, so that commands that send none start 0.2 s sooner.
"""

import ssl
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


@cache
def local_http() -> "httpx.Client":
    """Threads share it only if it was called before they start. It uses no proxy, keeps no connection open, because
    processes here restart, and trusts no certificate: to read those of the system costs 40 ms of CPU."""
    import httpx

    nobody, closed = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(trust_env=False, verify=nobody, limits=closed)


def http_status(url: str, seconds: float) -> int | None:
    """The status of a GET; None where there is no response within `seconds`."""
    import httpx

    try:
        return local_http().get(url, timeout=seconds).status_code
    except httpx.HTTPError:
        return None
