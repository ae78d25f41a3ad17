"""One shop in containers for all of these tests; where there is no engine, they are skipped and say so."""

import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from infra.embedded.ports import HOST
from infra.settings import AWAY_PORTS, OFFSETS, StackSettings
from tests.containers.shop import ContainerShop, running

ENGINE_SECONDS = 30


def require_engine() -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker on the path")
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=ENGINE_SECONDS)
    if said.returncode:
        pytest.skip(f"no Docker engine answers: {said.stderr.strip()}")


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerShop]:
    require_engine()
    home = tmp_path_factory.mktemp("containers") / "home"
    with running(ContainerShop(StackSettings(home=home, port_base=_free_base()))) as shop:
        yield shop


@pytest.fixture(autouse=True)
def logs_of_a_failed_test(request: pytest.FixtureRequest, shop: ContainerShop) -> Iterator[None]:
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        print(shop.logs())


def _free_base() -> int:
    for base in range(20_500, 21_900, 100):
        ports = [base + site + offset for site in (0, AWAY_PORTS) for offset in OFFSETS.values()]
        probes = [socket.socket() for _ in ports]
        try:
            for probe, port in zip(probes, ports, strict=True):
                probe.bind((HOST, port))
        except OSError:
            continue
        else:
            return base
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free range of ports")
