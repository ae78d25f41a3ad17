"""Each container of the default profile fails in each of four ways."""

from pathlib import Path

import pytest

from infra.stack.compose.engine import Failure
from tests.containers.shop import PROCESSES, STORES, ContainerShop

pytestmark = pytest.mark.timeout(2400)


@pytest.mark.parametrize("failure", Failure)
def test_each_container_fails_once_and_nothing_is_lost_or_doubled(
    shop: ContainerShop, failure: Failure, tmp_path: Path
) -> None:
    named = [f"--container={service}" for service in (*STORES, *PROCESSES)]
    drilled = shop.drill(tmp_path, "--failure", failure, *named)
    assert sorted(drilled.broken) == sorted(f"{failure} {service}" for service in (*STORES, *PROCESSES))
