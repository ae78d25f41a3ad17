"""The shop in containers of its own, driven by `daybook --stack compose` and broken with `docker`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from zlib import crc32

import msgspec

from infra.base.ports import HOST
from infra.base.settings import ROOT, StackSettings
from infra.base.waiting import wait_until
from infra.lab.drills.report import DrillReport
from infra.stack.compose.engine import compose_environment, compose_home, is_healthy

SECONDS = 900.0
BACK_SECONDS = 240.0
# of this checkout: the tests of another one on the same engine begin by removing theirs
PROJECT = f"daybook-tests-{crc32(str(ROOT).encode()):08x}"
# `2. kill broker: seconds without an acknowledged write`
GAP = re.compile(r"\d+\. (.*): seconds without")
STORES = ("broker", "postgres")
PROCESSES = (
    "order-worker",
    "order-api",
    "inventory-worker",
    "inventory-api",
    "projection",
    "query-api",
    "registry",
    "storage",
)


@dataclass(frozen=True)
class Drilled:
    """What a drill broke, each as `kill broker`, in order; and how many commands were answered meanwhile."""

    broken: list[str]
    commands: float


class ContainerShop:
    """One project of compose. `settings` are as the commands see them; `variables` are more variables."""

    def __init__(
        self,
        settings: StackSettings,
        project: str = PROJECT,
        stores: Sequence[str] = STORES,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.project, self.stores = project, stores
        self.settings = settings.model_copy(update={"stack": "compose", "home": compose_home(settings.home)})
        self.environment: Mapping[str, str] = {
            **compose_environment(self.settings),
            "DAYBOOK_PORT_BASE": str(settings.port_base),
            "COMPOSE_PROJECT_NAME": project,
            # A store that is away on a busy machine may be away for long: no order expires meanwhile.
            "DAYBOOK_SETTLE_SECONDS": "600",
            "COLUMNS": "160",
            **variables,
        }

    def run(self, *arguments: str) -> str:
        """What `daybook --stack compose …` says; fails the test when its exit code is not 0."""
        return self._said(sys.executable, "-m", "infra.cli", "--stack", "compose", *arguments)

    def drill(self, folder: Path, *arguments: str) -> Drilled:
        """What `drill containers` reports; fails the test where a promise was not kept."""
        print(self.run("drill", "containers", "--out", str(folder), *arguments))
        report = read_report(folder)
        gaps = [GAP.match(promise.what) for promise in report.promises]
        return Drilled([gap[1] for gap in gaps if gap], report.figures["commands answered"])

    def docker(self, *arguments: str, more: Mapping[str, str] = MappingProxyType({})) -> str:
        """What `docker` says; `more` are further variables for it."""
        return self._said("docker", *arguments, more=more)

    def status(self) -> tuple[int, str]:
        return self.ended("status")

    def ended(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of a command."""
        command = [sys.executable, "-m", "infra.cli", "--stack", "compose", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def profile(self, name: str) -> None:
        """Start a profile beside what runs, and wait until all of it is healthy."""
        self.docker("compose", "--profile", name, "up", "-d", "--build", "--wait")

    def container(self, service: str) -> str:
        return f"{self.project}-{service}-1"

    def state(self, service: str) -> Mapping[str, object]:
        """The engine's view: Status, ExitCode, Pid…"""
        (inspected,) = json.loads(self.docker("inspect", self.container(service)))
        state: Mapping[str, object] = inspected["State"]
        return state

    def restarts(self, service: str) -> int:
        """How often the engine started it again by itself."""
        return int(self.docker("inspect", "--format", "{{.RestartCount}}", self.container(service)))

    def await_all(self) -> None:
        """Until everything answers."""
        for service in (*self.stores, *PROCESSES):
            name = self.container(service)
            eventually(lambda name=name: is_healthy(name), f"{name} answers")  # type: ignore[misc]

    def tool(self, offset: int) -> str:
        """The address of a profile's tool."""
        return f"http://{HOST}:{self.settings.port_base + offset}"

    @property
    def tools_password(self) -> tuple[str, str]:
        return "shop", (self.settings.home / "secrets/tools_password").read_text()

    def logs(self) -> str:
        """The end of every container's log, of every profile, for a failed test."""
        command = ["docker", "compose", "--profile", "*", "logs", "--tail", "40"]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def _said(self, *command: str, more: Mapping[str, str] = MappingProxyType({})) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-6000:]}"
        return done.stdout


def read_report(folder: Path) -> DrillReport:
    """What a drill has left in its folder."""
    return msgspec.json.decode((folder / "report.json").read_bytes(), type=DrillReport)


@contextmanager
def running(shop: ContainerShop) -> Iterator[ContainerShop]:
    """Up, from no volumes, until the end of the block."""
    shop.run("clean", "--yes")
    try:
        shop.run("up")
        yield shop
    finally:
        shop.run("clean", "--yes")


def eventually(holds: Callable[[], bool], what: str, seconds: float = BACK_SECONDS) -> None:
    wait_until(holds, what, seconds, every=0.2)
