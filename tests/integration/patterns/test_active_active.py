"""Both sites active, on two real brokers: events are mirrored under a prefix, and none circulates."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from infra.base.waiting import wait_until
from infra.log.topics import catalogue, drift
from infra.stack.embedded.child import Child, Program
from services.kernel.log.reader import partitions_of
from services.projection.engine.read_model import Arrival
from services.projection.engine.row_fold import fold
from services.projection.read_models import ORDERS
from tests.integration.patterns.active_active import arriving, of_both_sites
from tests.integration.patterns.seen import arrivals, records
from tests.integration.projection.shop_log import LogWriter, history, order_life
from tests.ports import free_ports

pytestmark = pytest.mark.long

# The copies' names match these patterns too: only the prefix keeps them from being mirrored back.
PATTERNS = [r".*order\.events", r".*inventory\.events"]
SECONDS = 120


@pytest.fixture(scope="module", autouse=True)
def mirror(sites: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MirrorMaker2 in both directions, started as an operator starts it."""
    folder = tmp_path_factory.mktemp("mirror")
    home, away = sites
    where = ("--folder", str(folder), "--port", str(free_ports(1)[0]))
    brokers = ("--home", home, "--away", away, *(word for name in PATTERNS for word in ("--topic", name)))
    command = (sys.executable, "-m", "tests.integration.patterns.active_active", *where, *brokers)
    child = Child(Program("mirror", command, os.environ), folder / "mirror.log")
    yield
    child.kill()


def test_both_sites_events_arrive_under_a_prefix_and_nothing_goes_round(sites: tuple[str, str]) -> None:
    home, away = sites
    # each entity has one writer: other seeds, other keys
    at_home, at_away = history(1, 20), history(2, 20)
    LogWriter(home).write_all(at_home, 10, spoil=0.3)
    LogWriter(away).write_all(at_away, 10, spoil=0.3)
    _until(lambda: _content(away, "home.order.events") == _content(home, "order.events"))
    _until(lambda: _content(home, "away.order.events") == _content(away, "order.events"))
    _until(lambda: _content(away, "home.inventory.events") == _content(home, "inventory.events"))
    assert drift(away, catalogue() | arriving("home")) == drift(home, catalogue() | arriving("away")) == []

    # enough time for a copy of a copy: MirrorMaker2 looks for topics every 10 s
    time.sleep(12)
    for bootstrap, peer in ((home, "away"), (away, "home")):
        names = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
        assert {name for name in names if name.startswith(("home.", "away."))} == set(arriving(peer))
    own = sum(len(records) for records in _content(home, "order.events"))
    assert own == sum(event.body.TYPE.startswith("daybook.order.") for event in at_home)

    # one read model over both logs is the same at both sites
    rows = fold(ORDERS, {}, _arrivals(home, of_both_sites(ORDERS, "away").topics)).rows
    assert rows == fold(ORDERS, {}, _arrivals(away, of_both_sites(ORDERS, "home").topics)).rows
    assert len(rows) == 40


def test_a_second_writer_of_one_entity_forks_its_stream(sites: tuple[str, str]) -> None:
    """Two active sites do not merge events: that entity stops at both sites."""
    home, away = sites
    for bootstrap in sites:
        LogWriter(bootstrap).write(order_life("contested", random.Random(3))[:1])
    for bootstrap, peer in ((home, "away"), (away, "home")):
        _until_there(bootstrap, f"{peer}.order.events", b"contested")
        folded = fold(ORDERS, {}, _arrivals(bootstrap, of_both_sites(ORDERS, peer).topics))
        parked = [(arrival.key, stop.kind) for arrival, stop in folded.parked]
        assert parked == [("contested", "forked")]


def _until_there(bootstrap: str, topic: str, key: bytes) -> None:
    _until(lambda: any(record.key() == key for record in records(bootstrap, topic)))


def _content(bootstrap: str, topic: str) -> list[list[tuple[object, ...]]]:
    """Each partition's committed records, without offsets."""
    by_partition: dict[int, list[tuple[object, ...]]] = {
        number: [] for number in partitions_of(bootstrap, topic)
    }
    for record in records(bootstrap, topic):
        by_partition[record.partition()].append(
            (record.key(), record.value(), record.headers(), record.timestamp())
        )
    return list(by_partition.values())


def _arrivals(bootstrap: str, topics: Iterable[str]) -> list[Arrival]:
    return arrivals(record for topic in topics for record in records(bootstrap, topic))


def _until(true: Callable[[], bool]) -> None:
    # the process that creates the topics may still be starting
    wait_until(true, "the other site's records arrive", SECONDS, later=(KeyError,), every=0.2)
