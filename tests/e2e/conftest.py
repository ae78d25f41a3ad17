"""One shop for all end-to-end tests."""

from collections.abc import Iterator

import pytest

from tests.authorizer import Decisions
from tests.e2e.shop import Shop, opened


@pytest.fixture(scope="package")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Decisions:
    """What its broker allowed and denied."""
    return Decisions(tmp_path_factory.mktemp("authorizer") / "decisions")


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory, decisions: Decisions) -> Iterator[Shop]:
    with opened(tmp_path_factory.mktemp("shop"), decisions.environment) as shop:
        yield shop
