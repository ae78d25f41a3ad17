"""A client generated from the OpenAPI documents performs the steps of the README."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.shop import SECONDS, Shop

pytestmark = pytest.mark.long

APIS = {"ORDER": "orders_client", "INVENTORY": "stock_client", "QUERY": "query_client"}


@pytest.fixture
def addresses(shop: Shop) -> dict[str, str]:
    lines = [line.partition("=") for line in shop.run("env").splitlines()]
    return {name: value.strip("'\"") for name, _, value in lines}


@pytest.fixture
def generated(
    addresses: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """A connected client for each API, generated from the document that the API serves."""
    configuration = tmp_path / "configuration.yml"
    configuration.write_text("post_hooks: []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    clients: dict[str, Any] = {}
    for api, package in APIS.items():
        url = addresses[f"DAYBOOK_{api}_URL"]
        document = tmp_path / f"{package}.json"
        document.write_bytes(httpx.get(f"{url}/openapi.json").content)
        program = Path(sys.executable).with_name("openapi-python-client")
        options = ("--path", document, "--config", configuration, "--meta", "none", "--output-path")
        done = subprocess.run(
            [program, "generate", *options, tmp_path / package],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0 and "warning" not in done.stdout.lower(), done.stdout + done.stderr
        bearer = addresses["DAYBOOK_AUTH"].rpartition(" ")[2]
        connect = importlib.import_module(package).AuthenticatedClient
        clients[api] = connect(base_url=url, timeout=SECONDS, token=bearer)
    yield clients
    for client in clients.values():
        client.get_httpx_client().close()


def called(client: Any, tag: str, operation: str, *path: str, **arguments: Any) -> Any:
    """The response of an operation; `body` as a dictionary."""
    package = type(client).__module__.partition(".")[0]
    module = importlib.import_module(f"{package}.api.{tag}.{operation}")
    if (body := arguments.pop("body", None)) is not None:
        arguments["body"] = module._get_kwargs.__annotations__["body"].from_dict(body)
    return module.sync_detailed(*path, client=client, **arguments)


@pytest.mark.timeout(600)
def test_the_walk(generated: dict[str, Any]) -> None:
    stock, orders, queries = generated["INVENTORY"], generated["ORDER"], generated["QUERY"]
    delivery = {"quantity": 10, "reference": "delivery 2"}
    received = called(stock, "stock", "receive_stock", "MUG-2", body=delivery, idempotency_key="generated-1")
    assert (received.status_code, received.parsed.status) == (200, "stocked")
    line = {"sku": "MUG-2", "quantity": 2, "unit_price": "7.50"}
    order = {"order_id": "generated-1", "country": "Portugal", "currency": "EUR", "lines": [line]}
    placed = called(
        orders, "orders", "place_order", body=order, idempotency_key="generated-2", wait="settled"
    )
    assert (placed.status_code, placed.parsed.status) == (201, "confirmed")
    shipped = called(orders, "orders", "ship_order", "generated-1", body={"carrier": "by hand"})
    assert shipped.parsed.version > placed.parsed.version
    token = shipped.headers["consistency-token"]
    read = called(queries, "orders", "get_order", "generated-1", consistency_token=token)
    assert (read.parsed.status, read.parsed.gross) == ("shipped", "15.00")
    refused = called(orders, "orders", "cancel_order", "generated-1", body={"reason": "too late"})
    assert (refused.status_code, refused.parsed.code) == (409, "already_shipped")
