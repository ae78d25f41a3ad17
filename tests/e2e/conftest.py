"""One shop for all end-to-end tests."""

from collections.abc import Iterator

import pytest

from tests.e2e.shop import Shop, opened


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened(tmp_path_factory.mktemp("shop")) as shop:
        yield shop
