"""Two brokers, a link between them and MirrorMaker2: what crosses, how far it is, and who may stop it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from msgspec import json, structs

from contracts.kafka_address import bootstrap_of, secured
from contracts.kernel.records import SiteRole
from infra.dr.mirror import MirrorLag, MirrorMeter
from infra.log.control import write_role
from infra.log.topics import catalogue, drift
from infra.stack.embedded.stack import log_file
from infra.stack.mirror_settings import mirror_transactional_id
from infra.stack.shop import MIRROR
from services.kernel.log import clients
from services.kernel.log.clients import Connection
from services.kernel.log.control import read_control, transactional_ids
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.transactions import transactional_producer
from tests.authorizer import Decisions, unused
from tests.integration.sites.rig import TwoSites, eventually, two_sites

pytestmark = pytest.mark.long

TOPIC = "order.events"


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Decisions:
    """What the brokers of both sites allowed and denied."""
    return Decisions(tmp_path_factory.mktemp("authorizer") / "decisions")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, decisions: Decisions) -> Iterator[TwoSites]:
    folder: Path = tmp_path_factory.mktemp("sites") / "home"
    members = "broker", "link", "guard", "mirror"
    with two_sites(folder, *members, environment=decisions.environment) as stack:
        eventually(lambda: stack.member(stack.away, "mirror")[1])
        yield stack


def test_a_mirror_starts_without_a_search_through_all_classes(stack: TwoSites) -> None:
    """Which takes most of its start, and on a busy machine longer than the supervisor waits."""
    log = log_file(stack.away.settings, MIRROR).read_text()
    assert "with ServiceLoaderScanner took" in log
    assert "with ReflectionScanner took" not in log


def write(bootstrap: str, numbers: range, *, commit: bool = True, flow: str = "") -> None:
    """One transaction over both partitions. Not the shop's events: the mirror does not look inside."""
    producer = transactional_producer(bootstrap, f"test-{flow or uuid.uuid4().hex}", 10_000)
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in numbers:
        value = f"{'kept' if commit else 'aborted'} {number}".encode()
        headers: list[tuple[str, str | bytes | None]] = [("ce_id", str(number).encode()), ("empty", b"")]
        producer.produce(
            TOPIC,
            value,
            f"key-{number}",
            partition=number % 2,
            timestamp=1_700_000_000_000 + number,
            headers=headers,
        )
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def content(bootstrap: str) -> dict[int, list[tuple[object, ...]]]:
    """Each partition's committed records, offsets apart."""
    partitions = partitions_of(bootstrap, TOPIC)
    records: dict[int, list[tuple[object, ...]]] = {partition: [] for partition in partitions}
    for record in read_to_end(bootstrap, TOPIC, dict.fromkeys(partitions, 0)):
        records[record.partition()].append(
            (record.key(), record.value(), record.headers(), record.timestamp())
        )
    return records


def mirror_lag(stack: TwoSites, source: str, seconds: float = 30.0) -> MirrorLag:
    """Read once; `source` is an address of home's broker."""
    with MirrorMeter(source, stack.away.bootstrap, "home") as meter:
        return meter.read(seconds)


def behind(stack: TwoSites) -> int:
    """Counted beside home's broker, so that a cut link does not matter."""
    return mirror_lag(stack, stack.home.bootstrap).total


def test_topics_of_both_sites_are_as_the_catalogue_says(stack: TwoSites) -> None:
    assert drift(stack.home.bootstrap) == []
    assert drift(stack.away.bootstrap) == []
    assert read_control(stack.home.bootstrap).role == SiteRole("home", "active", 1)
    assert read_control(stack.away.bootstrap).role == SiteRole("away", "passive", 1)


def test_what_is_committed_arrives_in_order_and_what_is_aborted_does_not(stack: TwoSites) -> None:
    for start in range(0, 300, 30):
        write(stack.home.bootstrap, range(start, start + 30), commit=start % 60 == 0, flow="arrives")
    eventually(lambda: mirror_lag(stack, stack.home.link).total == 0)
    here, there = content(stack.home.bootstrap), content(stack.away.bootstrap)
    assert here == there
    assert sum(len(records) for records in there.values()) == 150


def test_the_largest_records_of_a_mirrored_topic_arrive(stack: TwoSites) -> None:
    largest = catalogue()[TOPIC].max_record_bytes - 1_000  # without what the broker counts with it
    producer = clients.writer(stack.home.bootstrap, {"message.max.bytes": 2 * largest})
    for partition in (0, 1):
        producer.produce(TOPIC, bytes([partition]) * largest, "large", partition=partition)
    assert producer.flush(30) == 0
    eventually(lambda: behind(stack) == 0, 60)
    assert content(stack.away.bootstrap) == content(stack.home.bootstrap)


def test_a_cut_link_stops_the_mirror_and_a_healed_one_lets_it_go_on(stack: TwoSites) -> None:
    assert stack.run("sites", "cut").returncode == 0
    time.sleep(0.5)
    write(stack.home.bootstrap, range(1000, 1005))
    with pytest.raises(TimeoutError):
        mirror_lag(stack, stack.home.link, seconds=1)
    time.sleep(2)
    lag = mirror_lag(stack, stack.home.bootstrap)
    assert {partition: count for partition, count in lag.events.items() if count} == {
        (TOPIC, 0): 3,
        (TOPIC, 1): 2,
    }
    assert stack.run("sites", "heal").returncode == 0
    eventually(lambda: behind(stack) == 0)
    assert content(stack.home.bootstrap) == content(stack.away.bootstrap)


def test_the_link_takes_nobody_without_a_certificate(stack: TwoSites, tmp_path: Path) -> None:
    address = stack.home.link_from(stack.away.settings, MIRROR)
    assert TOPIC in clients.admin(address).list_topics(timeout=20).topics
    own = Connection(address).identity
    assert own is not None
    for name, changed in (
        ("no certificate", structs.replace(own, certificate="", key="")),
        ("another password", structs.replace(own, password="x" * 32)),
    ):
        file = tmp_path / f"{name}.json"
        file.write_bytes(json.encode(changed))
        with pytest.raises(KafkaException):
            clients.admin(secured(bootstrap_of(address), file)).list_topics(timeout=5)
    # among their own, users prove themselves with the password alone
    own_brokers = secured(bootstrap_of(stack.home.bootstrap), tmp_path / "no certificate.json")
    assert TOPIC in clients.admin(own_brokers).list_topics(timeout=20).topics


@pytest.mark.full
def test_a_mirror_that_runs_and_copies_nothing_is_started_anew(stack: TwoSites) -> None:
    before, _ = stack.member(stack.away, "mirror")
    # its only task ends, as by any fatal error of a transaction; the process stays
    producer = transactional_producer(stack.away.bootstrap, mirror_transactional_id("home"), 10_000)
    producer.init_transactions(60)
    write(stack.home.bootstrap, range(1_000, 1_030), flow="anew")
    eventually(lambda: stack.member(stack.away, "mirror")[0] not in (None, before))
    eventually(lambda: mirror_lag(stack, stack.home.link).total == 0)
    assert content(stack.away.bootstrap) == content(stack.home.bootstrap)


def test_a_held_mirror_stays_down_and_the_lag_is_exact(stack: TwoSites) -> None:
    stack.away.journal.keep_down("mirror")
    eventually(lambda: stack.member(stack.away, "mirror") == (None, False))
    write(stack.home.bootstrap, range(2000, 2007))
    write(stack.home.bootstrap, range(2007, 2020), commit=False)
    assert behind(stack) == 7
    assert stack.member(stack.away, "mirror")[0] is None
    stack.away.journal.release("mirror")
    eventually(lambda: behind(stack) == 0)
    assert content(stack.home.bootstrap) == content(stack.away.bootstrap)


def test_a_promotion_that_becomes_visible_ends_the_old_site(stack: TwoSites) -> None:
    name = transactional_ids("order", 0)[0]
    worker: Producer = transactional_producer(stack.home.bootstrap, name, 10_000)
    worker.init_transactions(30)
    worker.begin_transaction()
    worker.produce("order.answers", b"too late", "key", partition=0)
    stack.away.journal.keep_down("mirror")
    assert stack.run("sites", "cut").returncode == 0
    write_role(stack.away.bootstrap, SiteRole("away", "active", 2))
    time.sleep(2)
    assert read_control(stack.home.bootstrap).role.role == "active"  # it cannot know
    assert stack.run("sites", "heal").returncode == 0
    eventually(lambda: read_control(stack.home.bootstrap).role == SiteRole("home", "passive", 2), 30)

    def fenced() -> bool:
        try:
            worker.commit_transaction(10)
        except KafkaException as error:
            return bool(error.args[0].fatal())
        raise AssertionError("a worker of the old epoch committed")

    # the role is written first, the slots are fenced within the same moment
    eventually(lambda: stack.home.journal.events() is not None and _logged(stack, "stood_down"), 30)
    assert fenced()


def test_no_mirror_starts_into_an_active_site(stack: TwoSites) -> None:
    write_role(stack.away.bootstrap, SiteRole("away", "active", 2))
    stack.away.journal.keep_down("mirror")
    eventually(lambda: stack.member(stack.away, "mirror") == (None, False))

    stack.away.journal.release("mirror")
    eventually(
        lambda: any("no mirror into away" in event["detail"] for event in stack.away.journal.events()), 30
    )
    assert stack.member(stack.away, "mirror") == (None, False)


def _logged(stack: TwoSites, event: str) -> bool:
    return event in (stack.home.settings.logs / "guard.log").read_text()


def test_mirror_and_guards_used_their_rights_and_were_denied_nothing(decisions: Decisions) -> None:
    assert unused("sites", decisions.used) == []
    # MirrorMaker2 would create this topic although it is told to write no heartbeats
    assert decisions.denied_to() in ([], ["mirror CREATE Topic:LITERAL:heartbeats CreateTopics"])
