"""The reviewed table of rights on a secured site of three brokers: any of them denies what one broker denies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.stack.security import apply_security, prepare_identities
from services.kernel.log import clients
from tests.e2e.shop import Shop
from tests.integration.security.attempts import more_topics, wrong_cells
from tests.ports import free_base

NOBODY = "nobody"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site of three brokers for admin, with every topic of the table, and a user without rights."""
    shop = Shop(tmp_path_factory.mktemp("secured") / "home", free_base())
    settings = shop.settings
    try:
        shop.run("up", "--brokers", "3", "--only", "broker")
        prepare_identities(settings, [NOBODY])
        apply_security(settings, [NOBODY])
        admin = clients.admin(settings.kafka)  # until all are created: without a client they would never be
        for created in admin.create_topics(more_topics()).values():
            created.result()
        yield settings.kafka
    finally:
        shop.run("down")


def test_every_cell_on_three_brokers(brokers: str) -> None:
    assert wrong_cells(brokers) == {}
