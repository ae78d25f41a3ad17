"""Connectors put to Kafka Connect's distributed worker, and seen to run.

`python -m infra.stack.compose.connectors`: puts every `*.json` of the folder DAYBOOK_CONNECTORS to the worker at
DAYBOOK_CONNECT_URL. Exit code 1 where one does not come to run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from pydantic_settings import BaseSettings, SettingsConfigDict

from infra.base.errors import DaybookError

ASK_SECONDS, PATIENCE_SECONDS, PAUSE_SECONDS = 30.0, 180.0, 0.5
# A task runs, in its worker's words, before it has asked its database; and the worker's health is looked at
# every ten seconds only.
STEADY_SECONDS = 12.0
# The worker balances itself, or has not heard of the connector yet.
LATER = {404, 409}


class ConnectorsSettings(BaseSettings):
    """Environment variables: DAYBOOK_CONNECT_URL, DAYBOOK_CONNECTORS."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    connect_url: str
    connectors: Path


class NotRunning(DaybookError):
    """A connector was refused, failed or did not come to run; the text says which and why."""


def read_connectors(folder: Path) -> dict[str, Mapping[str, str]]:
    """Every connector's configuration by its name, as the files of the folder say it."""
    found = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]
    return {each["name"]: each["config"] for each in found}


def put(url: str, name: str, config: Mapping[str, str]) -> None:
    """Make a connector, or change it, and wait until it and its tasks run. Raises NotRunning, OSError."""
    path, until = f"{url}/connectors/{quote(name, safe='')}", time.monotonic() + PATIENCE_SECONDS
    _answered(f"{path}/config", config, until)
    since = None
    while True:
        states = list(_states(_answered(f"{path}/status", None, until)))
        if failed := [trace for state, trace in states if state == "FAILED"]:
            raise NotRunning(f"{name} failed: {first_line(failed)}")
        # its own, and at least one task's
        running = len(states) > 1 and {state for state, _ in states} == {"RUNNING"}
        since = (since or time.monotonic()) if running else None
        if since and time.monotonic() - since > STEADY_SECONDS:
            return
        if time.monotonic() > until:
            raise NotRunning(
                f"{name} does not run after {PATIENCE_SECONDS:.0f} s: {states or 'nothing known'}"
            )
        time.sleep(PAUSE_SECONDS)


def first_line(traces: Iterable[str]) -> str:
    """What went wrong: the last cause of the first trace, which says most."""
    lines = next(iter(traces)).splitlines() or ["no reason given"]
    return next((line for line in reversed(lines) if line.startswith("Caused by: ")), lines[0])


def _states(said: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The connector's and each task's state, with its trace."""
    for part in (said["connector"], *said["tasks"]):
        yield part["state"], part.get("trace", "")


def _answered(path: str, config: Mapping[str, str] | None, until: float) -> Mapping[str, Any]:
    while True:
        try:
            return _ask(path, config)
        except HTTPError as refusal:
            if refusal.code not in LATER or time.monotonic() > until:
                raise NotRunning(f"{path} answered {refusal.code}: {refusal.read().decode()}") from refusal
        except (URLError, ConnectionError):
            # The worker is not up yet.
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE_SECONDS)


def _ask(path: str, config: Mapping[str, str] | None) -> Mapping[str, Any]:
    body = None if config is None else json.dumps(config).encode()
    method = "GET" if config is None else "PUT"
    request = Request(path, body, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=ASK_SECONDS) as answer:
        found: Mapping[str, Any] = json.load(answer)
        return found


def main() -> int:
    """The process's exit code."""
    settings = ConnectorsSettings()  # type: ignore[call-arg] # from the environment
    try:
        for name, config in read_connectors(settings.connectors).items():
            put(settings.connect_url, name, config)
            print(f"{name} runs", flush=True)
    except (NotRunning, OSError) as reason:
        print(f"connectors: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
