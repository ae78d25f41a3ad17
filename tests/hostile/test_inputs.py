"""A hundred thousand bad inputs: no API responds with 5xx, no process ends, none grows.

`DAYBOOK_HOSTILE_INPUTS` is how many (`make test-hostile-short`: a tenth).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
import schemathesis
from confluent_kafka import KafkaError, Message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth

from infra.base.waiting import wait_until
from infra.lab.load.clients import Api
from infra.lab.load.shop import api_urls
from infra.log.rights import principals, rights
from infra.log.topics import catalogue
from infra.stack.tokens import caller_of
from services.kernel.log import clients
from tests.e2e.shop import SECONDS, Shop
from tests.hostile.inputs import Fuzzer
from tests.hostile.test_hostile import PROCESSES
from tests.hostile.wire import send
from tests.unit.api.access_tokens import refused_headers

INPUTS = int(os.environ.get("DAYBOOK_HOSTILE_INPUTS", "100000"))
APIS = {Api.ORDER: "order", Api.INVENTORY: "inventory", Api.QUERY: "query"}
DOCUMENTS = Path(__file__).parents[1] / "contract/openapi"
SEED = 7
# Of all inputs: with a valid token, with none, with bad headers, and what is not HTTP. Everything else comes beside.
DOCUMENTED, TOKENS, HEADERS, NO_HTTP = 0.55, 0.2, 0.15, 0.1
WARM = 0.2
GROWTH, NOISE_BYTES = 1.10, 2**20
pytestmark = pytest.mark.timeout(900)
TOTALS: Counter[str] = Counter()


def memory(shop: Shop) -> dict[str, int]:
    """The resident memory of each of our own processes."""
    return {name: psutil.Process(shop.member(name).pid).memory_info().rss for name in PROCESSES}


def fuzzer(shop: Shop, api: Api, seed: int) -> Fuzzer:
    token = caller_of(shop.settings).headers()["Authorization"].removeprefix("Bearer ")
    return Fuzzer(json.loads((DOCUMENTS / f"{APIS[api]}.json").read_text()), token, seed)


def storm(shop: Shop, api: Api, seed: int, inputs: float) -> None:
    """So many inputs to one API, of each kind its share."""
    port, source = shop.settings.port(f"{APIS[api]}-api"), fuzzer(shop, api, seed)
    kinds: dict[str, tuple[Iterator[bytes], float, tuple[int, ...], bool]] = {
        "a valid token": (source.documented(), DOCUMENTED, (), True),
        "no valid token": (source.with_bad_tokens(refused_headers()), TOKENS, (401,), True),
        "bad headers": (source.with_bad_headers(), HEADERS, (), True),
        "no HTTP": (source.probes(), NO_HTTP, (), False),
    }
    for kind, (requests, share, allowed, framed) in kinds.items():
        sent = send(port, requests, int(inputs * share), *allowed, framed=framed)
        print(f"{APIS[api]}, {kind}: {json.dumps(dict(sorted(sent.statuses.items())))}")
        TOTALS[kind] += sent.statuses.total()
        assert sent.wrong == []


@contextmanager
def unharmed(shop: Shop) -> Iterator[None]:
    """Afterwards the same processes run, and the shop works."""
    before = {name: shop.member(name) for name in PROCESSES}
    yield
    works(shop)
    assert {name: shop.member(name) for name in PROCESSES} == before


def works(shop: Shop) -> None:
    """Stock is received, and seen by a reader."""
    urls, sku = api_urls(shop.settings), f"sound-{uuid4()}"
    with httpx.Client(auth=urls.caller, timeout=60, trust_env=False) as client:
        body: dict[str, Any] = {"quantity": 1, "reference": "delivery 1"}
        received = client.post(f"{urls[Api.INVENTORY]}/stock/{sku}/receipts", json=body)
        assert received.status_code == 200, received.text
        token = {"Consistency-Token": received.headers["Consistency-Token"]}

        def seen() -> bool:
            return client.get(f"{urls[Api.QUERY]}/stock/{sku}", headers=token).status_code == 200

        wait_until(seen, "the read model has it", SECONDS)


def test_the_apis_refuse_them_and_do_not_grow(shop: Shop) -> None:
    with unharmed(shop):
        for api in APIS:
            storm(shop, api, SEED, INPUTS * WARM / len(APIS))
        before = memory(shop)
        for api in APIS:
            storm(shop, api, SEED + 1, INPUTS * (1 - WARM) / len(APIS))
        after = memory(shop)
    for name in PROCESSES:
        print(f"{name}: {before[name] / 2**20:.0f} MB before, {after[name] / 2**20:.0f} MB after")
    assert [name for name in PROCESSES if after[name] > before[name] * GROWTH + NOISE_BYTES] == []


@pytest.mark.parametrize("api", APIS)
def test_no_operation_of_a_document_ignores_its_token(shop: Shop, api: Api) -> None:
    """Requests that schemathesis derives from the document that the API serves, each also without its token."""
    schema = schemathesis.openapi.from_url(f"{api_urls(shop.settings)[api]}/openapi.json")
    headers = caller_of(shop.settings).headers()
    with unharmed(shop):
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            derived(operation.as_strategy(), headers)
            if operation.body or list(operation.iter_parameters()):  # else no request is invalid
                derived(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), headers)


def derived(cases: SearchStrategy[Case[Any]], headers: dict[str, str]) -> None:
    @settings(
        max_examples=max(5, INPUTS // 2000),
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def holds(case: Case[Any]) -> None:
        TOTALS["schemathesis"] += 1
        case.call_and_validate(headers=headers, checks=[not_a_server_error, ignored_auth])

    holds()


def forged(topic: str, number: int) -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """Keys, values and headers that no process of ours writes."""
    hostile = [
        ("ce_type", b"daybook.order.OrderPlaced"),
        ("ce_id", b"\xff"),
        ("ce_sequence", b"-1"),
        ("ce_epoch", b"x"),
    ]
    yield None, b"\xff" * 10, []
    yield f"forged-{number}".encode(), b"\0\0\0\0\x1d", hostile
    yield f"forged-{number}".encode(), None, []
    yield b"\xff\xfe", b"{}", [("\u202e", b"\x1b[2J")]
    yield topic.encode(), b"x" * 10_000, hostile * 20


def test_forged_records_as_every_principal(shop: Shop) -> None:
    """The broker refuses each that the catalogue does not allow; what it allows is not ours, or parked."""
    may = {
        (right.principal, right.name)
        for right in rights()
        if (right.kind, right.operation) == ("topic", "write")
    }
    results: Counter[tuple[str, str, bool]] = Counter()
    with unharmed(shop):
        for principal in principals():

            def noted(error: KafkaError | None, record: Message, who: str = principal) -> None:
                denied = error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
                results[who, str(record.topic()), denied] += 1

            options = {"enable.idempotence": False, "message.timeout.ms": 20_000}
            producer = clients.writer(shop.settings.kafka_as(principal), options)
            for topic in catalogue():
                for number in range(1 if (principal, topic) in may else max(1, INPUTS // 50_000)):
                    for key, value, headers in forged(topic, number):
                        producer.produce(topic, value, key, partition=0, headers=headers, on_delivery=noted)
            assert producer.flush(60) == 0
    written = {(principal, topic) for principal, topic, denied in results if not denied}
    assert written == {(principal, topic) for principal, topic in may if topic in catalogue()}
    assert written.isdisjoint((principal, topic) for principal, topic, denied in results if denied)
    TOTALS["forged records"] += results.total()
    print(f"{results.total()} forged records; {len(written)} principals with a topic may write them")
