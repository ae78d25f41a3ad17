"""A stack of a test's own, and its command as a user types it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.base.journal import MemberState, StackJournal, StackState
from infra.base.settings import ROOT, StackSettings
from infra.base.waiting import wait_until
from tests.ports import free_base

SECONDS = 120


class Shop:
    """One stack's home and ports, and its command."""

    def __init__(self, home: Path) -> None:
        self.base = free_base()
        self.settings = StackSettings(home=home, port_base=self.base)
        self.logs = home / "logs"
        self.journal = StackJournal(home)
        self._environment = {**os.environ, "DAYBOOK_HOME": str(home), "DAYBOOK_PORT_BASE": str(self.base)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "infra.cli", *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--only", "broker,postgres")

    def start(self) -> None:
        up = self.up()
        assert up.returncode == 0, up.stdout + up.stderr

    def state(self) -> StackState:
        state = self.journal.read()
        assert state is not None
        return state

    def member(self, name: str) -> MemberState:
        return next(member for member in self.state().members if member.name == name)

    def pids(self) -> list[int]:
        return [member.pid for member in self.state().members if member.pid]


def eventually(true: Callable[[], bool]) -> None:
    wait_until(true, "the shop becomes so", SECONDS)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "home")
    yield shop
    shop.run("down")
    assert not shop.journal.supervised()
