"""Each container of the default profile fails in each of four ways."""

from pathlib import Path

import pytest

from tests.containers.failures import Failure, cut_off, killed, lived_through, paused, restarted
from tests.containers.shop import PROCESSES, STORES, ContainerShop

pytestmark = pytest.mark.timeout(2400)


@pytest.mark.parametrize("failure", [killed, paused, cut_off, restarted])
def test_each_container_fails_once_and_nothing_is_lost_or_doubled(
    shop: ContainerShop, failure: Failure, tmp_path: Path
) -> None:
    failures = [(failure, service) for service in (*STORES, *PROCESSES)]
    lived_through(shop, failures, failure.__name__, tmp_path / "told")
