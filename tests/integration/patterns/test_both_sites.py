"""An event sent to two real brokers is taken once, also if one of them was unreachable for a while."""

from __future__ import annotations

import random
import uuid

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from infra.base.ports import HOST
from services.kernel.record.envelope import Envelope, Metadata, now_micros, uuid7
from tests.integration.patterns.both_sites import BothSites, Event, Once, TwoWriters, event_of
from tests.integration.patterns.seen import records
from tests.ports import free_ports

TILLS = ("till-1", "till-2", "till-3")


def sold(till: str, number: int) -> Event:
    kind, causation = "example.till.Sold", uuid7()
    plumbing = Metadata(uuid7(), kind, till, "tills", now_micros(), causation, causation, 1, version=number)
    return Envelope(plumbing, b"sale %d" % number)


def day(first: int, last: int) -> list[Event]:
    return [sold(till, number) for number in range(first, last + 1) for till in TILLS]


@pytest.fixture
def topic(sites: tuple[str, str]) -> str:
    name = f"till-{uuid.uuid4().hex[:8]}.sales"
    for bootstrap in sites:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    return name


def taken(once: Once, arriving: list[Message]) -> list[tuple[str, int]]:
    return [
        (event.metadata.subject, event.metadata.version)
        for record in arriving
        for event in once.take(event_of(record))
    ]


def per_till(sales: list[tuple[str, int]]) -> dict[str, list[int]]:
    return {till: [version for entity, version in sales if entity == till] for till in TILLS}


def all_tills(first: int, last: int) -> dict[str, list[int]]:
    return {till: list(range(first, last + 1)) for till in TILLS}


def test_what_is_sent_to_both_is_taken_once(sites: tuple[str, str], topic: str) -> None:
    tills = BothSites(dict(zip(("home", "away"), sites, strict=True)), topic)
    for event in day(1, 20):
        tills.send(event)
    assert tills.settle() == {"home": [], "away": []}
    arriving = [record for bootstrap in sites for record in records(bootstrap, topic)]
    assert len(arriving) == 120
    # the two sites' records in any order: first site first, or mixed without regard to versions
    for seed in range(5):
        once = Once()
        if seed:
            random.Random(seed).shuffle(arriving)
        assert per_till(taken(once, arriving)) == all_tills(1, 20)
        assert (once.dropped, once.waiting) == (60, 0)


def test_a_site_that_was_away_costs_no_event(sites: tuple[str, str], topic: str) -> None:
    """Home is unreachable for sales 6 to 10: they arrive late, and change nothing for a reader of both sites."""
    home, away = sites
    before, during, after = day(1, 5), day(6, 10), day(11, 15)
    nowhere = f"{HOST}:{free_ports(1)[0]}"
    owing = BothSites({"home": nowhere, "away": away}, topic, seconds=2)
    for event in during:
        owing.send(event)
    lacking = owing.settle()
    assert {event.metadata.id for event in lacking["home"]} == {event.metadata.id for event in during}
    assert lacking["away"] == []

    alive = BothSites({"home": home}, topic)
    for event in [*before, *after]:
        alive.send(event)
    assert alive.settle() == {"home": []}
    # a reader of home alone keeps back the events after the gap
    once = Once()
    assert per_till(taken(once, records(home, topic))) == all_tills(1, 5)
    assert once.waiting == len(after)
    # away has the missing events
    assert per_till(taken(once, records(away, topic))) == all_tills(6, 15)
    assert once.waiting == 0
    # the missing events arrive
    for event in lacking["home"]:
        alive.send(event)
    assert alive.settle() == {"home": []}
    assert taken(once, records(home, topic)) == []
    assert per_till(taken(Once(), records(home, topic))) == all_tills(1, 15)


def test_owed_events_are_sent_again_to_who_lacks_them(topic: str) -> None:
    nowhere = BothSites({"home": f"{HOST}:{free_ports(1)[0]}"}, topic, seconds=1)
    sales = day(1, 2)
    for event in sales:
        nowhere.send(event)
    assert len(nowhere.settle()["home"]) == len(sales)
    nowhere.send_owed()
    assert len(nowhere.settle()["home"]) == len(sales)


def test_a_consumer_goes_on_from_its_versions() -> None:
    sales = day(1, 3)
    once = Once(dict.fromkeys(TILLS, 2))
    assert [event.metadata.version for sale in sales for event in once.take(sale)] == [3, 3, 3]
    assert once.dropped == 6
    assert once.versions == dict.fromkeys(TILLS, 3)


def test_two_writers_of_one_entity_are_found() -> None:
    once = Once()
    once.take(sold("till-1", 1))
    with pytest.raises(TwoWriters, match="till-1 version 1"):
        once.take(sold("till-1", 1))
    once.take(sold("till-1", 3))
    with pytest.raises(TwoWriters, match="till-1 version 3"):
        once.take(sold("till-1", 3))
