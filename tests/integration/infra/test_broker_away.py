"""The stack's broker is killed: those who need it are back with it, and their logs stay short."""

import os
import signal

from tests.integration.infra.conftest import Shop, eventually

PARTS = ("order-worker", "order-api")
CRASHES = 3
# A few lines for each end and start; of each attempt to connect there were 30 a second.
MOST_LINES = 6


def test_services_are_back_with_their_broker_and_their_logs_stay_short(shop: Shop) -> None:
    assert shop.run("up", "--only", ",".join(("broker", *PARTS))).returncode == 0
    before = {name: _lines(shop, name) for name in PARTS}
    for crash in range(CRASHES):
        pid = shop.member("broker").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        _await_back(shop, pid, crash)
    deaths = _deaths(shop, "order-worker")
    assert all("exit code 3" in detail and detail.endswith("restart in 0 s") for detail in deaths), deaths
    assert _deaths(shop, "order-api") == []
    for name in PARTS:
        assert _lines(shop, name) - before[name] <= MOST_LINES * CRASHES, name


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
