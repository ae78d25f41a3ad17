"""The negative control: the comparison finds what a mirror doubles, once its exactly-once is off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.embedded.child import Child
from infra.embedded.mirror import prepare_mirror
from infra.sites.comparison import compare
from services.kernel.transactions import transactional_producer
from tests.dr.bare import broker, copied_beyond, ends, mirror_place, quiet

TOPIC = "order.events"
PER_TRANSACTION = 200
EVERY_SECONDS = 0.1
KILLS = 2

pytestmark = pytest.mark.timeout(600)


@contextmanager
def writing(bootstrap: str) -> Iterator[None]:
    """About 2,000 records a second, a tenth of them aborted, until the end of the block."""
    stopping = threading.Event()

    def write() -> None:
        producer = transactional_producer(bootstrap, "control", 10_000)
        producer.init_transactions(30)
        number = 0
        while not stopping.wait(EVERY_SECONDS):
            producer.begin_transaction()
            for _ in range(PER_TRANSACTION):
                number += 1
                producer.produce(TOPIC, f"value {number}".encode(), f"key {number}", partition=number % 2)
            producer.flush(30)
            if number % (10 * PER_TRANSACTION) == 0:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_kills_double_records_only_without_exactly_once(tmp_path: Path, exactly_once: bool) -> None:
    with broker(tmp_path / "home") as source, broker(tmp_path / "away") as target:
        place = mirror_place(tmp_path / "mirror", source, target, exactly_once)
        with writing(source):
            for _ in range(KILLS):
                before = ends(target, TOPIC)
                mirror = Child(prepare_mirror(place), tmp_path / "mirror.log")
                # in the midst: something was copied since it began
                copied_beyond(target, TOPIC, before + 2 * PER_TRANSACTION)
                mirror.kill()
        mirror = Child(prepare_mirror(place), tmp_path / "mirror.log")
        try:
            copied_beyond(target, TOPIC, before + 4 * PER_TRANSACTION)
            quiet(target, TOPIC)
        finally:
            mirror.kill()
        found = compare(source, target)
        if exactly_once:
            assert found.different == ()
            assert found.missing == 0
            assert found.records > 5 * PER_TRANSACTION
        else:
            assert found.different != ()
