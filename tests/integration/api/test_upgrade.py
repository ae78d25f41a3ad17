"""A repeat that is sent to an API of another version gets the response of the first attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.log.topics import create_topics
from tests.integration.api.processes import PATIENCE, process
from tests.integration.projection.shop_log import fresh_topics
from tests.older_code import unpack
from tests.ports import free_ports

# The last commit whose write APIs were Starlette's and msgspec's.
BEFORE = "76d7f9f599a48ec7980008cbe365e2fb825ed417"
LINE = {"sku": "MUG", "quantity": 2, "unit_price": "2.550"}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of that commit."""
    folder = unpack(BEFORE, tmp_path_factory.mktemp("before"))
    # what its pages needed, and no request of this test
    (folder / "swagger_ui_bundle.py").write_text("swagger_ui_path = None\n")
    return folder


@pytest.fixture(scope="module")
def apis(kafka: str, before: Path) -> Iterator[dict[str, str]]:
    """The order API of both versions, before one worker."""
    fresh_topics(kafka)
    create_topics(kafka)
    ports = free_ports(3)
    with ExitStack() as stack:
        stack.enter_context(process("order", "worker", kafka, ports[0]))
        stack.enter_context(process("order", "api", kafka, ports[1], str(before), "main", replica="0"))
        stack.enter_context(process("order", "api", kafka, ports[2], replica="1"))
        yield {"before": f"http://127.0.0.1:{ports[1]}", "after": f"http://127.0.0.1:{ports[2]}"}


REQUESTS: list[tuple[str, dict[str, str], dict[str, Any], int]] = [
    ("/orders", {}, {"country": "Réunion", "currency": "EUR", "lines": [LINE]}, 201),
    (
        "/orders",
        {"If-Match": '"0"'},
        {
            "order_id": "{name}",
            "country": "France",
            "currency": "EUR",
            "lines": [LINE, LINE],
            "charges": [{"code": "D", "amount": "-0.5"}],
            "occurred_at": "2010-12-01 08:26:00.1234567+02:00",
        },
        201,
    ),
    ("/orders/{name}/cancellation", {"If-Match": '"7"'}, {"reason": "twice"}, 412),
    ("/orders/{name}/cancellation", {}, {"reason": "too late", "occurred_at": "2011-01-01T00:00:00Z"}, 200),
    ("/orders/{name}/shipment", {}, {"carrier": None, "reference": "RM1"}, 409),
]


@pytest.mark.parametrize(("first", "then"), [("before", "after"), ("after", "before")])
def test_a_repeat_after_the_upgrade_gets_the_first_response(
    apis: dict[str, str], first: str, then: str
) -> None:
    for number, (path, headers, body, status) in enumerate(REQUESTS):
        key = {"Idempotency-Key": f"{first}-{number}", **headers}
        named = {**body, "order_id": first} if "order_id" in body else body
        responses = [
            httpx.post(apis[api] + path.format(name=first), json=named, headers=key, timeout=PATIENCE)
            for api in (first, then)
        ]
        first_response, again = responses
        assert (first_response.status_code, again.status_code) == (status, status), first_response.text
        assert first_response.json() == again.json()
        assert again.headers["Idempotency-Replayed"] == "true"
        assert first_response.headers.get("ETag") == again.headers.get("ETag")
