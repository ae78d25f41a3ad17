"""Fills a writable registry from the lock: every schema under every subject, with the lock's ids.

`python -m infra.stack.compose.fill_registry`, for a registry with Confluent's API at DAYBOOK_REGISTRY_URL. A
registry numbers new schemas, so they are registered in the order of their ids. One that returns another id has other
schemas: exit code 1.
"""

import sys
from collections.abc import Mapping
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import msgspec

from contracts.lock import Entry, Lock, load_lock
from infra.base.errors import DaybookError
from infra.base.settings import FromEnvironment
from infra.base.waiting import wait_until

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
COMPATIBILITY = "FULL_TRANSITIVE"
ASK_SECONDS, PATIENCE_SECONDS, PAUSE_SECONDS = 10.0, 120.0, 0.5


class FillSettings(FromEnvironment):
    """Environment variable: DAYBOOK_REGISTRY_URL."""

    registry_url: str


class OtherIds(DaybookError):
    """The registry has given a schema another id than the lock; the text names both."""


def fill(url: str, lock: Lock) -> int:
    """Register what is missing. Returns the number of the subjects' versions. Raises OtherIds, OSError."""
    wait_until(
        lambda: _request(url, "/subjects"),
        "the registry responds",
        PATIENCE_SECONDS,
        enough=lambda _: True,
        # It listens before it responds. TimeoutError: it took the request, and its response did not come
        later=(URLError, ConnectionError, TimeoutError),
        every=PAUSE_SECONDS,
    )
    _request(url, "/config", {"compatibility": COMPATIBILITY}, "PUT")
    for entry in in_order(lock):
        body = {"schema": lock.text(entry.id), "schemaType": "AVRO"}
        given = _request(url, f"/subjects/{quote(entry.subject, safe='')}/versions", body, "POST")["id"]
        if given != entry.id:
            raise OtherIds(
                f"{entry.subject} version {entry.version}: the lock says {entry.id}, it got {given}"
            )
    return len(lock.entries)


def in_order(lock: Lock) -> list[Entry]:
    """Every schema once by its id, then those under further subjects: these take a number, too."""
    first: dict[int, Entry] = {}
    for entry in lock.entries:
        first.setdefault(entry.id, entry)
    return [*(first[number] for number in sorted(first)), *(e for e in lock.entries if e is not first[e.id])]


def _request(url: str, path: str, body: Mapping[str, str] | None = None, method: str = "GET") -> Any:
    data = msgspec.json.encode(body) if body else None
    request = Request(url + path, data, {"Content-Type": MEDIA_TYPE}, method=method)
    with urlopen(request, timeout=ASK_SECONDS) as response:
        return msgspec.json.decode(response.read())


def main() -> None:
    """Ends the process with exit code 1 and the reason where it fails."""
    url = FillSettings().registry_url  # type: ignore[call-arg] # from the environment
    try:
        print(f"{fill(url, load_lock())} versions of subjects are registered")
    except (OtherIds, OSError) as reason:
        sys.exit(f"registry {url}: {reason}")


if __name__ == "__main__":
    main()
