"""The negative control: the comparison finds what a mirror doubles, once its exactly-once is off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, cycle, islice
from pathlib import Path

import pytest

from infra.dr.comparison import SiteComparison, compare
from infra.stack.mirror_settings import MirrorPlace
from services.kernel.log.transactions import transactional_producer
from services.kernel.record.envelope import Metadata, now_micros, partition_of, uuid7, write_headers
from tests.dr.full.bare import ATTEMPTS, await_still, broker, ends, mirror, mirror_place

TOPIC = "order.events"
PER_TRANSACTION = 200
EVERY_SECONDS = 0.1
KILLS = 2

pytestmark = pytest.mark.timeout(600)


@contextmanager
def writing(bootstrap: str) -> Iterator[None]:
    """About 2,000 records a second, a tenth of them aborted, until the end of the block; one commit more."""
    stopping = threading.Event()

    def write() -> None:
        producer = transactional_producer(bootstrap, "control", 10_000)
        producer.init_transactions(30)
        numbers = count(1)
        ends_so = (producer.commit_transaction,) * 9 + (producer.abort_transaction,)
        for end in cycle(ends_so):
            last = stopping.wait(EVERY_SECONDS)
            producer.begin_transaction()
            for number in islice(numbers, PER_TRANSACTION):
                about = Metadata(uuid7(), "control", f"key-{number}", "test", now_micros(), "c", "c", 1, 1)
                where = partition_of(about.subject, 2)
                producer.produce(TOPIC, b"any", about.subject, partition=where, headers=write_headers(about))
            producer.flush(30)
            if last:
                producer.commit_transaction(30)
                return
            end(30)

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
        layout = mirror_place(tmp_path / "mirror", source, target, exactly_once)
        with writing(source):
            for _ in range(KILLS):
                before = ends(target, TOPIC)
                with mirror(layout) as running:
                    # in the midst: something was copied since it began
                    running.copies_beyond(TOPIC, before + 2 * PER_TRANSACTION)
        comparison = copied_to_the_end(layout)
        if exactly_once:
            assert comparison.different == ()
            assert comparison.missing == 0
            assert comparison.records > 5 * PER_TRANSACTION
        else:
            assert comparison.different != ()


def copied_to_the_end(layout: MirrorPlace) -> SiteComparison:
    """Both logs compared, once the mirror has nothing left to copy."""
    for _ in range(ATTEMPTS):
        # the last writing came after the last kill: there is work, also for one that has to wait first
        before = ends(layout.target_bootstrap, TOPIC)
        with mirror(layout) as running:
            running.copies_beyond(TOPIC, before)
            await_still(layout.target_bootstrap, TOPIC)
        comparison = compare(layout.source_bootstrap, layout.target_bootstrap)
        if not comparison.missing or comparison.different:
            break
    return comparison
