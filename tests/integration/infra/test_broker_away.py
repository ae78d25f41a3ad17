"""The stack's broker is killed: those who need it are back with it, and their logs stay short."""

import os
import signal
import time

import pytest

from tests.integration.infra.conftest import Shop, eventually

PARTS = ("order-worker", "projection", "order-api")
CRASHES = 3
# Of each end, start and return; and of a second of absence, in which there were 30 to 60.
LINES_OF_A_CRASH, LINES_A_SECOND = 15, 2


@pytest.mark.full
def test_services_are_back_with_their_broker_and_their_logs_stay_short(shop: Shop) -> None:
    up = shop.run("up", "--only", ",".join(("broker", "postgres", *PARTS)))
    assert up.returncode == 0, up.stderr
    before, away = {name: _lines(shop, name) for name in PARTS}, 0.0
    for crash in range(CRASHES):
        pid, killed = shop.member("broker").pid, time.monotonic()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        _await_back(shop, pid, crash)
        away += time.monotonic() - killed
    deaths = _deaths(shop, "order-worker")
    assert all("exit code 3" in detail and detail.endswith("restart in 0 s") for detail in deaths), deaths
    assert _deaths(shop, "order-api") == []
    most = LINES_OF_A_CRASH * CRASHES + LINES_A_SECOND * away
    written = {name: _lines(shop, name) - before[name] for name in PARTS}
    assert all(lines <= most for lines in written.values()), (written, most)


def _await_back(shop: Shop, killed: int, crash: int) -> None:
    eventually(lambda: shop.member("broker").pid not in (None, killed))
    eventually(lambda: len(_deaths(shop, "order-worker")) > crash)
    eventually(lambda: all(shop.member(name).ready for name in ("broker", *PARTS)))


def _deaths(shop: Shop, process: str) -> list[str]:
    return [
        event["detail"]
        for event in shop.journal.events()
        if (event["process"], event["event"]) == (process, "died")
    ]


def _lines(shop: Shop, name: str) -> int:
    return len((shop.logs / f"{name}.log").read_text().splitlines())
