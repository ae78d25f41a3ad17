"""`daybook status` is true while parts of the stack are dead or frozen."""

import random
import re

import psutil
import pytest

from tests.integration.infra.conftest import Shop, eventually
from tests.integration.projection.shop_log import LogWriter, order_life


def lag(status: str, process: str) -> str:
    """The last but one column of a process's row."""
    row = re.search(rf"^.*\b{process}\b.*$", status, re.MULTILINE)
    assert row is not None, status
    return row[0].replace("┃", "│").split("│")[-3].strip()


@pytest.mark.full
def test_it_says_how_far_behind_and_since_when_nothing_was_applied(shop: Shop) -> None:
    up = shop.run("up", "--only", "broker,postgres,projection,query-api")
    assert up.returncode == 0, up.stderr
    eventually(lambda: lag(shop.run("status").stdout, "projection") == "0")
    assert shop.run("status").returncode == 0

    shop.journal.keep_down("projection")
    eventually(lambda: shop.member("projection").held)
    events = order_life("waits", random.Random(1))
    LogWriter(shop.settings.kafka).write(events)
    eventually(lambda: "nothing was applied to orders" in shop.run("status").stdout)
    status = shop.run("status")
    assert status.returncode == 1
    assert lag(status.stdout, "projection") == str(len(events))
    assert "projection is not ready: a command keeps it down" in status.stdout
    assert re.search(r"query-api is not ready: nothing was applied to .* since \S+Z", status.stdout)
    shop.journal.release("projection")
    eventually(lambda: shop.run("status").returncode == 0)

    broker = shop.member("broker").pid
    assert broker is not None
    frozen = psutil.Process(broker)
    frozen.suspend()
    try:
        eventually(lambda: lag(shop.run("status").stdout, "projection") == "unknown")
        assert "broker is not ready: it does not respond" in shop.run("status").stdout
    finally:
        frozen.resume()
    eventually(lambda: shop.run("status").returncode == 0)
