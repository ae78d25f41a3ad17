"""The reviewed table of rights, tried on the broker of a shop in containers of its own: the attempts also write."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.base.settings import StackSettings
from services.kernel.log import clients
from tests.containers.shop import PROCESSES, PROJECT, ContainerShop, running
from tests.integration.security.attempts import more_topics, wrong_cells

pytestmark = pytest.mark.timeout(1800)
APART = 800  # its ports, beyond those of the other shops


def test_every_cell_in_containers(shop: ContainerShop, tmp_path: Path) -> None:
    """As every principal but `nobody`, for whom containers have no user."""
    settings = StackSettings(home=tmp_path / "home", port_base=shop.settings.port_base + APART)
    with running(ContainerShop(settings, f"{PROJECT}-rights")) as own:
        own.docker("compose", "stop", *PROCESSES)
        admin = clients.admin(own.settings.kafka)
        for created in admin.create_topics(more_topics()).values():
            created.result()
        assert wrong_cells(own.settings.kafka, but="nobody") == {}
