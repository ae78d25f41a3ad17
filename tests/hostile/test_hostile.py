"""5,000 hostile connections, and one customer who sends all they can: other clients get all their responses.

How long these wait is measured by `make bench P=P14`.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from services.edge.settings import LimitSettings
from tests.bench.generator import PATIENCE_SECONDS
from tests.e2e.shop import Shop
from tests.hostile.beside import GREEDY_CONNECTIONS, GREEDY_SECONDS, crowd, greedy, others
from tests.hostile.crowd import CONNECTIONS, CROWD

PROCESSES = ("order-worker", "inventory-worker", "projection", "order-api", "inventory-api", "query-api")


@pytest.mark.parametrize(("api", "kind"), [("order-api", "small_order"), ("query-api", "page")])
def test_a_hostile_crowd_takes_nobodys_response_and_ends_no_process(shop: Shop, api: str, kind: str) -> None:
    before = {name: shop.member(name) for name in PROCESSES}
    counts: Counter[str] = Counter()
    with crowd(shop.settings.port(api), counts):
        beside = others(shop, api, kind, f"{kind}-hostile")
    print(f"{api}: p50 {beside.p50:.1f} ms, p99 {beside.p99:.1f} ms; {json.dumps(counts, sort_keys=True)}")
    assert beside.refused == 0
    assert beside.rate > 0
    assert {name: shop.member(name) for name in PROCESSES} == before
    # the crowd had its full size and reached every limit
    assert counts["most open"] > CONNECTIONS - CROWD
    assert {"400", "408", "413", "429", "431"} <= {name.rpartition(" ")[2] for name in counts}


@pytest.mark.parametrize(
    ("api", "kind", "own"), [("order-api", "small_order", "own_order"), ("query-api", "page", "page")]
)
def test_a_greedy_customer_takes_nobodys_response(shop: Shop, api: str, kind: str, own: str) -> None:
    with greedy(shop, api, own, f"{own}-greedy") as sent:
        beside = others(shop, api, kind, f"{kind}-beside")
    print(f"{api}: p50 {beside.p50:.1f} ms, p99 {beside.p99:.1f} ms")
    limit, loaded = LimitSettings(), sent.result()
    accepted = loaded.rate * GREEDY_SECONDS
    assert accepted <= limit.requests_per_second * (GREEDY_SECONDS + limit.burst_seconds), (
        "it was not limited"
    )
    # each refusal comes late: with all its connections it sends no more than so many in a second
    assert 0 < loaded.refused <= 2 * GREEDY_CONNECTIONS * (GREEDY_SECONDS + PATIENCE_SECONDS)
    assert beside.refused == 0
    assert beside.rate > 0
