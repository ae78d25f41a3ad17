"""One shop for all end-to-end tests."""

import socket
from collections.abc import Iterator

import pytest

from infra.embedded.ports import HOST
from infra.settings import OFFSETS
from tests.e2e.shop import Shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp("shop") / "home", _free_base())
    try:
        shop.run("up")
        yield shop
    finally:
        shop.run("down")


def _free_base() -> int:
    for base in range(30_100, 32_000, 100):
        probes = [socket.socket() for _ in OFFSETS]
        try:
            for probe, offset in zip(probes, OFFSETS.values(), strict=True):
                probe.bind((HOST, base + offset))
        except OSError:
            continue
        else:
            return base
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free range of ports")
