"""`daybook --stack compose scale`: further containers share the work, also over `down` and `up`."""

from pathlib import Path

import pytest

from infra.base.waiting import wait_until
from tests.containers.shop import SECONDS, ContainerShop
from tests.e2e.load import FIRST, SECOND, load

pytestmark = pytest.mark.timeout(1200)


def test_scaling_under_load_loses_nothing(shop: ContainerShop, tmp_path: Path) -> None:
    with load(shop.settings, tmp_path, "scaled") as clients:
        for process in ("order", "inventory", "projection", "order-api"):
            shop.run("scale", process, "2")
        clients.switch(SECOND)
        shop.docker("kill", shop.container("order-worker-1"))
        shop.docker("start", shop.container("order-worker-1"))
        before = len(clients.responses)
        wait_until(lambda: len(clients.responses) > before + 100, "the second API responds", SECONDS)
        shop.run("scale", "inventory", "1")
    shop.run("down")
    shop.run("up")
    code, status = shop.status()
    assert code == 0 and all(f"{kind}-1" in status for kind in ("order-worker", "projection", "order-api"))
    with load(shop.settings, tmp_path, "fewer") as clients:
        clients.switch(FIRST)
        for process in ("order-api", "projection", "order"):
            shop.run("scale", process, "1")
    code, status = shop.status()
    assert code == 0 and "-1 " not in status
