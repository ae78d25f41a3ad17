"""`Durability: both-sites` and the loss budget over two real brokers: the test is the mirror, and a scripted worker
decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from contracts.kernel.records import Answer, Outcome, SiteRole
from infra.log.control import lift_alone, write_alone, write_role
from infra.log.topics import create_topics
from services.kernel.log.transactions import transactional_producer
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, partition_of, uuid7
from tests.integration.api.processes import eventually, process
from tests.integration.api.responder import Responder, outcome
from tests.ports import free_ports
from tests.stack import own_broker

pytestmark = pytest.mark.long

ORDER: dict[str, Any] = {
    "country": "France",
    "currency": "EUR",
    "lines": [{"sku": "85123A", "quantity": 6, "unit_price": "2.55"}],
}
WAIT_SECONDS = 2.0
BUDGET_SECONDS = 3.0  # within which an API connects to the other site, also on a busy machine


class Sites:
    """`post` sends an order under a key; `mirror` copies an outcome to the other site."""

    def __init__(self, port: int, worker: Responder, home: str, away: str) -> None:
        self._port, self.worker, self.home, self.away = port, worker, home, away
        self._producer: Producer = transactional_producer(away, "test-mirror", 60_000)
        self._producer.init_transactions(30)

    def post(self, key: str) -> httpx.Response:
        return post(self._port, {"Idempotency-Key": key, "Durability": "both-sites"})

    def mirror(self, copied: Outcome, *, commit: bool = True, at: int = 0) -> None:
        self._producer.begin_transaction()
        key, number = copied.subject, partition_of(copied.subject, 2)
        if copied.event_ids:
            event, headers = "order.events", [("ce_id", copied.event_ids[-1].encode())]
            self._producer.produce(event, b"an event", key, number, headers=headers, timestamp=at)
        else:
            value = encode("order.answers", Answer(copied, now_micros()))
            self._producer.produce("order.answers", value, key, number, timestamp=at)
        self._producer.flush(30)
        if commit:
            self.commit()

    def commit(self) -> None:
        self._producer.commit_transaction(30)


def post(port: int, headers: dict[str, str]) -> httpx.Response:
    return httpx.post(f"http://127.0.0.1:{port}/orders", json=ORDER, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def sites(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    create_topics(kafka)
    (port,) = free_ports(1)
    with own_broker(tmp_path_factory.mktemp("away")) as away:
        create_topics(away)
        write_role(away, SiteRole("away", "passive", 1))  # the API compares its site with it
        with process("order", "api", kafka, port, replica="3", **settings_of(away)):
            worker = Responder(kafka)
            yield Sites(port, worker, kafka, away)
            worker.close()


def settings_of(away: str) -> dict[str, str]:
    return {"peer_kafka": away, "both_sites_seconds": str(WAIT_SECONDS), "wait_seconds": "5"}


def responds(sites: Sites, **changes: Any) -> list[Outcome]:
    """The worker responds so from now on; the outcomes come into the list."""
    outcomes: list[Outcome] = []

    def script(metadata: Metadata, _: Any) -> Outcome:
        outcomes.append(outcome(metadata, **changes))
        return outcomes[-1]

    sites.worker.script = script
    return outcomes


def post_and_mirror(sites: Sites, outcomes: list[Outcome], key: str, later: float) -> httpx.Response:
    """The outcome reaches the other site `later` seconds after the worker's decision."""

    def mirror() -> None:
        eventually(lambda: outcomes, "the worker decides")
        time.sleep(later)  # the mirror's delay
        sites.mirror(outcomes[-1])

    thread = threading.Thread(target=mirror)
    thread.start()
    response = sites.post(key)
    thread.join()
    return response


@pytest.mark.parametrize("later", [0.0, 0.3])
def test_a_write_that_the_mirror_copies_is_on_both_sites(sites: Sites, later: float) -> None:
    began = time.monotonic()
    response = post_and_mirror(sites, responds(sites), uuid7(), later)
    assert (response.status_code, response.json()["durability"]) == (201, "both-sites")
    assert time.monotonic() - began >= later


def test_a_write_that_is_not_copied_waits_again_with_its_key(sites: Sites) -> None:
    key, outcomes = uuid7(), responds(sites)
    response = sites.post(key)
    assert (response.status_code, response.json()["durability"]) == (202, "this-site")
    assert response.headers["location"]
    written = outcomes[-1]
    sites.mirror(written, commit=False)
    responds(sites, event_ids=written.event_ids, replayed=True)
    assert sites.post(key).status_code == 202  # not yet committed there
    sites.commit()
    response = sites.post(key)
    assert (response.status_code, response.json()["durability"]) == (201, "both-sites")
    assert response.headers["idempotency-replayed"] == "true"


def test_a_refusal_says_whether_the_other_site_has_it(sites: Sites) -> None:
    refused = {"kind": "refused", "code": "order_exists", "event_ids": ()}
    response = post_and_mirror(sites, responds(sites, **refused), uuid7(), 0.1)
    assert (response.status_code, response.json()["durability"]) == (409, "both-sites")
    responds(sites, **refused)
    response = sites.post(uuid7())
    assert (response.status_code, response.json()["durability"]) == (409, "this-site")


def test_a_write_is_refused_while_the_other_site_lacks_an_older_one(sites: Sites) -> None:
    (port,) = free_ports(1)
    budget = {**settings_of(sites.away), "loss_budget_seconds": str(BUDGET_SECONDS)}
    with process("order", "api", sites.home, port, replica="2", **budget):

        def copied_before_it_is_acknowledged(metadata: Metadata, _: Any) -> Outcome:
            sites.mirror(copied := outcome(metadata))
            return copied

        def status() -> int:
            return post(port, {"Idempotency-Key": uuid7()}).status_code

        def accepts_for_longer_than_the_budget() -> bool:
            statuses = []
            for _ in range(3):
                time.sleep(BUDGET_SECONDS / 2)
                statuses.append(status())
            return statuses == [201, 201, 201]

        sites.worker.script = copied_before_it_is_acknowledged
        assert status() == 201
        assert accepts_for_longer_than_the_budget()

        outcomes = responds(sites)
        eventually(lambda: status() == 503, "the oldest write is missing for longer than the budget")
        refused = post(port, {"Idempotency-Key": "again"})
        assert (refused.json()["code"], refused.json()["idempotency_key"]) == ("beyond_loss_budget", "again")
        assert refused.headers["retry-after"]
        for copied in outcomes:
            sites.mirror(copied)
        eventually(lambda: status() == 201, "nothing is missing any more")
        write_alone(sites.home, 1)
        eventually(accepts_for_longer_than_the_budget, "a site that is alone refuses nothing")
        lift_alone(sites.home)
