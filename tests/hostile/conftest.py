"""A shop of its own for hostile clients."""

from collections.abc import Iterator

import pytest

from tests.e2e.shop import Shop
from tests.ports import free_base


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp("shop") / "home", free_base())
    try:
        shop.run("up")
        yield shop
    finally:
        shop.run("down")
