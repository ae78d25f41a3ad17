"""A whole shop of its own for end-to-end tests, driven by the `daybook` command as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infra.base.journal import MemberState, StackJournal
from infra.base.ports import HOST
from infra.base.settings import ROOT, StackSettings
from infra.stack.shop import http_ready
from tests.ports import free_base

SECONDS = 600.0


@contextmanager
def opened(folder: Path) -> Iterator[Shop]:
    """A shop that is up, with its home in `folder`; down at the end."""
    shop = Shop(folder / "home", free_base())
    try:
        shop.run("up")
        yield shop
    finally:
        shop.run("down")


class Shop:
    """Its home and ports; `run` and `start` give `daybook` arguments."""

    def __init__(self, home: Path, port_base: int) -> None:
        self.settings = StackSettings(home=home, port_base=port_base)
        self.environment: Mapping[str, str] = {
            **os.environ,
            "DAYBOOK_HOME": str(home),
            "DAYBOOK_PORT_BASE": str(port_base),
            # A broker that is killed on a busy machine may be away for long: no order expires meanwhile.
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
        assert process.returncode == 0, output
        return output

    def member(self, name: str) -> MemberState:
        """One process, as the supervisor sees it."""
        state = StackJournal(self.settings.home).read()
        assert state is not None
        return next(member for member in state.members if member.name == name)

    def ready(self, name: str) -> bool:
        """Whether a process is back and says so itself; of the stores the supervisor knows."""
        member = self.member(name)
        answers = name in ("broker", "postgres") or http_ready(f"http://{HOST}:{self.settings.port(name)}")
        return member.ready and answers
