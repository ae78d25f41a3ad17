"""What can happen to a container, done with `docker` and always mended."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Any

import msgspec

from infra.base.waiting import TooLate, wait_until
from infra.stack.compose.engine import EngineFailed

CALL_SECONDS = 120.0
PROBE_SECONDS = 60.0
POLL_SECONDS = 0.05
TOLD_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failure(StrEnum):
    """`KILL`: without warning, and started again (the engine leaves alone whom `docker kill` has ended).
    `PAUSE`: alive, connected and silent. `CUT`: alive, and nobody is there. `RESTART`: told to stop, and
    started again."""

    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    RESTART = "restart"


@dataclass(frozen=True)
class Broken:
    """When it was broken and mended, seconds since 1970."""

    began: float
    mended: float


def undergo(name: str, failure: Failure, seconds: float) -> Broken:
    """Break the container `name` for `seconds`, and mend it, whatever happens meanwhile.

    To be called in the main thread: Ctrl-C and a request to end cut the wait short, and are raised as
    KeyboardInterrupt when the container is whole. Raises EngineFailed where Docker does not do it.
    """
    networks = _inspect(name)["NetworkSettings"]["Networks"]
    with put_off() as told:
        began = time.time()
        try:
            _break(name, failure, networks)
            with suppress(TooLate):
                wait_until(lambda: told, "a request to stop", seconds, every=POLL_SECONDS)
        finally:
            _mend(name, networks)
        mended = time.time()
    return Broken(began, mended)


def answers(name: str) -> bool:
    """Whether the container runs and its own health check says yes, asked now: the engine asks it now and
    then, and its word may be older than what has just happened."""
    found = _inspect(name)
    if not found["State"]["Running"] or found["State"]["Paused"]:
        return False
    kind, *check = (found["Config"].get("Healthcheck") or {}).get("Test") or ["NONE"]
    if kind == "NONE":
        return True
    command = ["sh", "-c", *check] if kind == "CMD-SHELL" else check
    try:
        return _call("exec", name, *command, seconds=PROBE_SECONDS).returncode == 0
    except EngineFailed:
        return False


def _break(name: str, failure: Failure, networks: Mapping[str, Any]) -> None:
    match failure:
        case Failure.KILL:
            _docker("kill", "--signal", "KILL", name)
        case Failure.PAUSE:
            _docker("pause", name)
        case Failure.CUT:
            for network in networks:
                _docker("network", "disconnect", network, name)
        case Failure.RESTART:
            _docker("stop", name)


def _mend(name: str, networks: Mapping[str, Any]) -> None:
    """Whatever was done to it, or half done: it goes by what it finds."""
    found = _inspect(name)
    if found["State"]["Paused"]:
        _docker("unpause", name)
    for network in networks.keys() - found["NetworkSettings"]["Networks"].keys():
        aliases = networks[network]["Aliases"] or ()
        _docker("network", "connect", *(f"--alias={alias}" for alias in aliases), network, name)
    if not found["State"]["Running"]:
        _docker("start", name)


@contextmanager
def put_off() -> Iterator[list[int]]:
    """Whoever tells this process to end is heard at the end of the block; the list says that somebody did."""
    told: list[int] = []

    def heard(number: int, _: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, heard) for number in TOLD_TO_END}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if told:
        raise KeyboardInterrupt


def _inspect(name: str) -> Mapping[str, Any]:
    (found,) = msgspec.json.decode(_docker("inspect", "--type", "container", name))
    answer: Mapping[str, Any] = found
    return answer


def _docker(*arguments: str) -> str:
    done = _call(*arguments)
    if done.returncode:
        raise EngineFailed(f"`docker {' '.join(arguments)}`: {done.stderr.strip()}")
    return done.stdout


def _call(*arguments: str, seconds: float = CALL_SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            # Ctrl-C in a terminal goes to all of its processes; this one has something to finish
            start_new_session=True,
        )
    except FileNotFoundError:
        raise EngineFailed("there is no docker on the path: install Docker with its compose plugin") from None
    except subprocess.TimeoutExpired:
        raise EngineFailed(f"`docker {' '.join(arguments)}` did not end in {seconds:.0f} s") from None
