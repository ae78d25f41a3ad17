"""A complete shop for end-to-end tests. Tests control it with the `daybook` command, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from infra.base.journal import MemberState, StackJournal
from infra.base.settings import ROOT, StackSettings
from infra.stack.shop import http_ready
from tests.leaks import secrets_of
from tests.ports import free_base

SECONDS = 600.0
NO_MORE: Mapping[str, str] = MappingProxyType({})


@contextmanager
def opened(folder: Path, environment: Mapping[str, str] = NO_MORE) -> Iterator[Shop]:
    """Starts a shop with its home in `folder`, and stops it at the end."""
    shop = Shop(folder / "home", free_base(), environment)
    try:
        shop.run("up")
        yield shop
    finally:
        shop.run("down")


class Shop:
    """The shop's home and ports. `run` and `start` call `daybook` with arguments.

    It keeps what the commands printed, and every secret that the shop has had.
    """

    def __init__(self, home: Path, port_base: int, environment: Mapping[str, str] = NO_MORE) -> None:
        self.settings = StackSettings(home=home, port_base=port_base)
        self.outputs: list[tuple[str, str]] = []
        self.secrets: dict[str, str] = {}
        self.environment: Mapping[str, str] = {
            **os.environ,
            **environment,
            "DAYBOOK_HOME": str(home),
            "DAYBOOK_PORT_BASE": str(port_base),
            # A broker that is killed on a busy machine may be down for long: no order may expire meanwhile.
            "DAYBOOK_SETTLE_SECONDS": "600",
            "COLUMNS": "160",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "infra.cli", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """The command's output; fails the test when its exit code is not 0."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=SECONDS)
        self.observe(" ".join(arguments), output)
        assert process.returncode == 0, output
        return output

    def observe(self, command: str, output: str) -> None:
        """Keeps what a command printed, and the secrets that the shop has now: `rotate` replaces them."""
        self.outputs.append((command, output))
        if (self.settings.home / "identity").exists():
            current = secrets_of(self.settings.home)
            earlier = {*self.secrets.values()}
            fresh = {name: secret for name, secret in current.items() if secret not in earlier}
            self.secrets |= {f"{name} ({len(self.outputs)})": secret for name, secret in fresh.items()}

    def member(self, name: str) -> MemberState:
        """The supervisor's state of one process."""
        state = StackJournal(self.settings.home).read()
        assert state is not None
        return next(member for member in state.members if member.name == name)

    def ready(self, name: str) -> bool:
        """Whether a process is ready: the supervisor and, except for the stores, the process itself report it."""
        member = self.member(name)
        serving = name in ("broker", "postgres") or http_ready(self.settings.health_url(name))
        return member.ready and serving
