"""The shop's processes as a supervisor starts them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from infra.base.waiting import wait_until
from tests.ports import free_ports

PATIENCE = 60.0


def eventually(check: Callable[[], Any], what: str) -> Any:
    """The first truthy result of `check` within `PATIENCE` seconds."""
    return wait_until(check, what, PATIENCE)


@contextmanager
def process(
    service: str,
    part: str,
    kafka: str,
    port: int,
    code: str | None = None,
    module: str = "service",
    **settings: str,
) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m services.<service>.<module> <part>`, of other `code` perhaps: ready, and ended at the end."""
    environment = {
        **os.environ,
        "DAYBOOK_KAFKA": kafka,
        "DAYBOOK_HTTP_PORT": str(port),
        "DAYBOOK_HEALTH_PORT": str(port if part == "worker" else free_ports(1)[0]),
        "DAYBOOK_HASH_KEY": "a key for tests alone",
        **{f"DAYBOOK_{name.upper()}": value for name, value in settings.items()},
    }
    command = [sys.executable, "-m", f"services.{service}.{module}", part]
    started = subprocess.Popen(command, env=environment, cwd=code)
    try:
        eventually(lambda: ready(started, port), f"{service} {part} did not become ready")
        yield started
    finally:
        started.terminate()
        started.wait(PATIENCE)


def ready(started: "subprocess.Popen[bytes]", port: int) -> bool:
    """Whether the process says that it is ready. Raises where it has ended."""
    if started.poll() is not None:
        raise RuntimeError(f"the process ended with {started.returncode}")
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200
    except httpx.TransportError:
        return False
