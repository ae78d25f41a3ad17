"""One shop in containers for all of these tests; where there is no engine, they are skipped and say so."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from infra.base.settings import StackSettings
from tests.containers.shop import ContainerShop, running
from tests.ports import free_base

ENGINE_SECONDS = 30


def require_engine() -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker on the path")
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    version = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ENGINE_SECONDS)
    if version.returncode:
        pytest.skip(f"no Docker engine answers: {version.stderr.strip()}")


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerShop]:
    require_engine()
    home = tmp_path_factory.mktemp("containers") / "home"
    with running(ContainerShop(StackSettings(home=home, port_base=free_base()))) as shop:
        yield shop


@pytest.fixture(autouse=True)
def logs_of_a_failed_test(request: pytest.FixtureRequest, shop: ContainerShop) -> Iterator[None]:
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        print(shop.logs())
