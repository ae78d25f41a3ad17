"""Worker processes of a test: started, signalled, and always ended."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from infra.base.http import http_status
from infra.base.waiting import wait_until
from tests.ports import free_ports
from tests.scraped import scrape

STEPS = (
    "begin_transaction:after",
    "produce:before",
    "produce:after",
    "send_offsets_to_transaction:before",
    "send_offsets_to_transaction:after",
    "commit_transaction:before",
    "commit_transaction:during",
    "commit_transaction:after",
)
KILLS_PER_STEP = 2
FIRST_BATCH = 3  # the number of the first batch's call: the start settles with both ids before it


class WorkerProcess:
    """A real worker in its own process; `doom` is (step, nth call, signal), see doomed_worker;
    `code` is the folder of another version's code."""

    def __init__(
        self,
        bootstrap: str,
        service: str,
        folder: Path,
        doom: tuple[str, int, str] | None = None,
        code: Path | None = None,
        **settings: object,
    ) -> None:
        self.port = free_ports(1)[0]
        environment = {
            **os.environ,
            "DAYBOOK_KAFKA": bootstrap,
            "DAYBOOK_HEALTH_PORT": str(self.port),
            "DAYBOOK_HTTP_PORT": str(self.port),  # of a version that had no other
            "DAYBOOK_SNAPSHOT_SECONDS": "1",
            **{f"DAYBOOK_{name.upper()}": str(value) for name, value in settings.items()},
        }
        module = ["-m", f"services.{service}.service", "worker"]
        if doom:
            step, nth, name = doom
            module = ["-m", "tests.integration.kernel.doomed_worker", service, step, str(nth), name]
        self.log = folder / f"{service}-{self.port}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, *module], env=environment, cwd=code, stdout=out, stderr=subprocess.STDOUT
            )

    def wait_ready(self, seconds: float = 90) -> None:
        wait_until(
            lambda: self.ready() or self.process.poll() is not None,
            lambda: f"the worker is ready:\n{self.log.read_text()[-3000:]}",
            seconds,
            every=0.02,
        )
        if self.process.poll() is not None:
            raise RuntimeError(f"the worker ended:\n{self.log.read_text()[-3000:]}")

    def ready(self) -> bool:
        return http_status(f"http://127.0.0.1:{self.port}/health/ready", 2) == 200

    def lags(self) -> dict[str, float]:
        return lags(scrape(self.port, 20))

    def wait_stopped(self, seconds: float = 60) -> None:
        """Waits until SIGSTOP has stopped the process."""
        wait_until(
            lambda: Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T",
            lambda: f"the worker is stopped:\n{self.log.read_text()[-3000:]}",
            seconds,
            every=0.02,
        )

    def end(self) -> int:
        """Kills it in any state. Returns its exit code."""
        self.process.kill()
        return self.process.wait(10)


def lags(text: str) -> dict[str, float]:
    """The lag metrics of /metrics, by name and labels as written there."""
    matches = re.findall(r"^(daybook_\w*lag\w*\{.*\}) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in matches}


def killed_at_every_step(
    start_worker: Callable[..., WorkerProcess], service: str, **settings: object
) -> None:
    """Starts workers one after the other; each is killed at a step of a transaction. Needs load."""
    pick = random.Random(3)
    for step in STEPS * KILLS_PER_STEP:
        nth = pick.randint(40, 400) if step.startswith("produce") else pick.randint(10, 40)
        worker = start_worker(service, doom=(step, nth, "SIGKILL"), **settings)
        assert worker.process.wait(60) == -9, worker.log.read_text()[-2000:]
