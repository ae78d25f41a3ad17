"""Creates the connectors of Kafka Connect's distributed worker, and waits until they run.

`python -m infra.stack.compose.connectors` creates one for each `*.json` of the folder DAYBOOK_CONNECTORS, at the
worker at DAYBOOK_CONNECT_URL. Exit code 1 where one does not run.
"""

import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import msgspec

from infra.base.errors import DaybookError
from infra.base.settings import FromEnvironment
from infra.base.waiting import wait_until

ASK_SECONDS, PATIENCE_SECONDS, PAUSE_SECONDS = 30.0, 180.0, 0.5
# A task reports RUNNING before it has contacted its database, and the worker's health is checked every ten seconds.
STEADY_SECONDS = 12.0
RETRY_STATUSES = {404, 409}


class ConnectorsSettings(FromEnvironment):
    """Environment variables: DAYBOOK_CONNECT_URL, DAYBOOK_CONNECTORS."""

    connect_url: str
    connectors: Path


class NotRunning(DaybookError):
    """A connector was refused, failed or does not run; the text says which and why."""


class ComeAgain(DaybookError):
    """The worker rebalances, or does not know the connector yet."""


def read_connectors(folder: Path) -> dict[str, Mapping[str, str]]:
    """The configuration of every connector in the folder, by its name."""
    files = [msgspec.json.decode(file.read_bytes()) for file in sorted(folder.glob("*.json"))]
    return {file_content["name"]: file_content["config"] for file_content in files}


def put(url: str, name: str, config: Mapping[str, str]) -> None:
    """Make a connector, or change it, and wait until it and its tasks run. Raises NotRunning, OSError."""
    path = f"{url}/connectors/{quote(name, safe='')}"
    _response(f"{path}/config", config)
    since: float | None = None

    def states() -> list[tuple[str, str]]:
        status = _response(f"{path}/status", None)
        # the connector's and each task's, with its trace
        current = [(part["state"], part.get("trace", "")) for part in (status["connector"], *status["tasks"])]
        if failed := [trace for state, trace in current if state == "FAILED"]:
            raise NotRunning(f"{name} failed: {first_line(failed)}")
        return current

    def steady(states: list[tuple[str, str]]) -> bool:
        nonlocal since
        # its own, and at least one task's
        running = len(states) > 1 and {state for state, _ in states} == {"RUNNING"}
        since = (since or time.monotonic()) if running else None
        return since is not None and time.monotonic() - since > STEADY_SECONDS

    wait_until(states, f"{name} runs", PATIENCE_SECONDS, enough=steady, every=PAUSE_SECONDS, error=NotRunning)


def first_line(traces: Iterable[str]) -> str:
    """The last cause of the first trace, which says most."""
    lines = next(iter(traces)).splitlines() or ["no reason given"]
    return next((line for line in reversed(lines) if line.startswith("Caused by: ")), lines[0])


def _response(path: str, config: Mapping[str, str] | None) -> Mapping[str, Any]:
    """The worker's response, once it is up and does not ask for a retry."""
    return wait_until(
        lambda: _request(path, config),
        f"the worker responds to {path}",
        PATIENCE_SECONDS,
        enough=lambda _: True,
        # TimeoutError: it took the request, and its response did not come
        later=(ComeAgain, URLError, ConnectionError, TimeoutError),
        every=PAUSE_SECONDS,
        error=NotRunning,
    )


def _request(path: str, config: Mapping[str, str] | None) -> Mapping[str, Any]:
    body = None if config is None else msgspec.json.encode(config)
    method = "GET" if config is None else "PUT"
    request = Request(path, body, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=ASK_SECONDS) as response:
            content: Mapping[str, Any] = msgspec.json.decode(response.read())
            return content
    except HTTPError as refusal:
        kind = ComeAgain if refusal.code in RETRY_STATUSES else NotRunning
        raise kind(f"{path} answered {refusal.code}: {refusal.read().decode()}") from refusal


def main() -> None:
    """Ends the process with exit code 1 and the reason where it fails."""
    settings = ConnectorsSettings()  # type: ignore[call-arg] # from the environment
    try:
        for name, config in read_connectors(settings.connectors).items():
            put(settings.connect_url, name, config)
            print(f"{name} runs", flush=True)
    except (NotRunning, OSError) as reason:
        sys.exit(f"connectors: {reason}")


if __name__ == "__main__":
    main()
