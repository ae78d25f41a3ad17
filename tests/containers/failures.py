"""What happens to containers, and what must hold of the raw log afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from infra.checker.evidence import Evidence, read_evidence
from infra.checker.invariants import check
from infra.drills.load import Load
from infra.drills.shopping import Shopping
from infra.retail.shop import Shop, api_urls
from tests.containers.shop import SECONDS, ContainerShop, eventually

Failure = Callable[[ContainerShop, str], AbstractContextManager[None]]
HELD_SECONDS = 3.0
RATE = 10.0


def lived_through(
    shop: ContainerShop, failures: Sequence[tuple[Failure, str]], name: str, told_to: Path
) -> None:
    """One failure after the other under load: each is got over, every command is answered in the end, and
    the checker finds nothing in the raw log."""
    with Load({"home": api_urls(shop.settings)}, "home", Shopping(1, name), told_to, RATE) as load:
        for failure, service in failures:
            with failure(shop, service):
                time.sleep(HELD_SECONDS)
            shop.await_all()
            accepted_again(load, time.time())
        assert load.finish() == []
    with Shop(api_urls(shop.settings)) as reader:
        reader.await_rest(SECONDS, lambda _: None)
    told = [each.for_checker() for each in load.told]
    assert len(told) > 100
    assert check(Evidence(read_evidence(shop.settings.kafka), told, at_rest=True)) == []


def accepted_again(load: Load, since: float) -> None:
    eventually(
        lambda: any(each.accepted and each.sent > since for each in load.told[-200:]),
        "a command that was sent after the failure is accepted",
    )


@contextmanager
def killed(shop: ContainerShop, service: str) -> Iterator[None]:
    """Without warning, and started again. (Who is killed by `docker kill` is not restarted by the engine.)"""
    shop.docker("kill", "--signal", "KILL", shop.container(service))
    yield
    shop.docker("start", shop.container(service))


@contextmanager
def paused(shop: ContainerShop, service: str) -> Iterator[None]:
    """Alive, connected and silent."""
    shop.docker("pause", shop.container(service))
    yield
    shop.docker("unpause", shop.container(service))


@contextmanager
def cut_off(shop: ContainerShop, service: str) -> Iterator[None]:
    """Alive, and nobody is there."""
    network = f"{shop.project}_default"
    shop.docker("network", "disconnect", network, shop.container(service))
    yield
    shop.docker("network", "connect", "--alias", service, network, shop.container(service))


@contextmanager
def restarted(shop: ContainerShop, service: str) -> Iterator[None]:
    """Told to stop, and started again."""
    shop.docker("stop", shop.container(service))
    yield
    shop.docker("start", shop.container(service))
