"""A process does not outlive a thread of its own that fails: it would go on with what that saw last."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from infra.dr import guard
from services.kernel.exit_codes import EXIT_FAILED
from services.kernel.worker import worker
from services.projection import main as projection

FAILS = """
import threading, time
from services.edge.json_logs import configure_logging
from services.kernel.threads import end_with_threads

configure_logging("worker", "info")
end_with_threads()
threading.Thread(target=lambda: {}["epoch"], name="control", daemon=True).start()
time.sleep(30)
"""


def test_a_process_ends_when_a_thread_fails_and_says_which() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == EXIT_FAILED
    line = json.loads(ended.stdout.splitlines()[0])
    assert (line["event"], line["thread"]) == ("thread_died", "control")
    assert "KeyError" in ended.stdout


class Begun(Exception):
    """The process came to what it does after that."""


@pytest.mark.parametrize(
    ("begin", "module"),
    [
        (lambda: worker.run_worker(None, None, None), worker),  # type: ignore[arg-type]
        (lambda: projection.main(["project"]), projection),
        (guard.main, guard),
    ],
    ids=["worker", "projection", "guard"],
)
def test_the_processes_that_follow_topics_end_so(
    begin: Any, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun() -> None:
        raise Begun

    for name in ("SITE", "PEER", "KAFKA", "PEER_KAFKA", "DATABASE_URL"):
        monkeypatch.setenv(f"DAYBOOK_{name}", "x")
    monkeypatch.setattr(module, "end_with_threads", begun)
    with pytest.raises(Begun):
        begin()
