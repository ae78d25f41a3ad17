"""Kafka Connect: supplier price lists in, settled orders out, whatever happens to the workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from contracts.order.events import OrderConfirmed
from infra.base.settings import ROOT
from infra.lab.checker.evidence import read_evidence
from infra.lab.load.load import Load
from infra.lab.load.orders import Shopping
from infra.lab.load.shop import Shop, api_urls
from infra.stack.compose.engine import Failure, inject, is_healthy
from infra.stack.compose.office import of_office
from infra.stack.shop import USER, database_url
from infra.stack.tokens import caller_of
from services.kernel.log.reader import partitions_of, read_to_end
from tests.containers.shop import SECONDS, ContainerShop, eventually

pytestmark = pytest.mark.timeout(2400)
EXAMPLE = ROOT / "infra" / "connect" / "example-prices.csv"
HEADER = "sku,supplier,price,currency"
WORKERS = ("connect", "price-lists", "intake")
MANY = 20_000
CONNECT = 6
HELD_SECONDS, RATE = 3.0, 10.0


@pytest.fixture(scope="module")
def connected(shop: ContainerShop) -> Iterator[ContainerShop]:
    shop.profile("connect")
    yield shop
    shop.docker("rm", "--force", *(shop.container(service) for service in WORKERS))


def test_prices_of_a_list_come_out_by_sku(connected: ContainerShop, tmp_path: Path) -> None:
    drop(connected, tmp_path, "example", EXAMPLE.read_text())
    rows = [line.split(",") for line in EXAMPLE.read_text().splitlines()[1:]]
    expected = {sku: (supplier, price, currency) for sku, supplier, price, currency in rows}
    eventually(lambda: prices(connected) == expected, "all prices of the list, and no others")
    assert refused(connected) == []


def test_the_same_list_again_changes_no_price(connected: ContainerShop, tmp_path: Path) -> None:
    before, lines = prices(connected), len(records(connected, "supplier.prices"))
    drop(connected, tmp_path, "example", EXAMPLE.read_text())
    eventually(lambda: len(records(connected, "supplier.prices")) == 2 * lines, "it is read again")
    assert prices(connected) == before


def test_a_broken_line_is_set_aside_and_the_next_list_goes_through(
    connected: ContainerShop, tmp_path: Path
) -> None:
    broken = ["21212,acme,twelve,GBP", "gift voucher,acme,1.00,GBP"]
    drop(
        connected,
        tmp_path,
        "broken",
        "\n".join([HEADER, "71053,acme,1.10,GBP", *broken, "22386,acme,0.5,EUR"]),
    )
    alien = "Artikel;Preis\n1;2\n"
    drop(connected, tmp_path, "alien", alien)
    drop(connected, tmp_path, "good", f"{HEADER}\n71053,acme,1.25,GBP\n")
    eventually(
        lambda: prices(connected).get("71053") == ("acme", "1.25", "GBP"), "the good list went through"
    )
    assert prices(connected)["22386"] == ("acme", "0.5", "EUR")
    eventually(lambda: len(refused(connected)) == len(broken), "both broken lines are set aside")
    assert [line.split("|")[1:] for line in refused(connected)] == [
        ["3", broken[0], ""],
        ["4", broken[1], ""],
    ]
    aside = connected.docker(
        "exec", connected.container("intake"), "sh", "-c", "cat /lists/refused/*alien.csv"
    )
    assert aside == alien


def test_a_list_is_whole_also_where_both_who_carry_it_are_killed(
    connected: ContainerShop, tmp_path: Path
) -> None:
    rows = [f"many-{number},acme,{number}.000001,GBP" for number in range(MANY)]
    already = len(records(connected, "supplier.prices"))
    drop(connected, tmp_path, "many", "\n".join([HEADER, *rows]))
    eventually(lambda: len(records(connected, "supplier.prices")) > already, "the list is under way")
    for service in ("price-lists", "intake"):
        kill(connected, service, 1.0)
    expected = {f"many-{number}": ("acme", f"{number}.000001", "GBP") for number in range(MANY)}
    eventually(lambda: expected.items() <= prices(connected).items(), "every price of the list")


def test_orders_that_are_confirmed_come_out_and_others_do_not(connected: ContainerShop) -> None:
    with httpx.Client(trust_env=False, timeout=60, auth=caller_of(connected.settings)) as client:
        urls = {api: connected.settings.url(api) for api in ("inventory-api", "order-api")}
        receipt = {"quantity": 5, "reference": "connect"}
        post(client, f"{urls['inventory-api']}/stock/office-mug/receipts", "office-delivery", receipt)
        for number, quantity in enumerate((2, 3, 1)):
            lines = [{"sku": "office-mug", "quantity": quantity, "unit_price": "7.515555"}]
            order = {"order_id": f"office-{number}", "country": "Portugal", "currency": "EUR", "lines": lines}
            post(client, f"{urls['order-api']}/orders?wait=settled", f"office-order-{number}", order)
    expected = {
        "office-0": (2, 15_031_110),
        "office-1": (3, 22_546_665),
    }  # of five mugs none is left for the third
    eventually(lambda: settled(connected, "office-").keys() == expected.keys(), "both orders")
    orders = settled(connected, "office-")
    assert {name: (row["units"], row["gross_micros"]) for name, row in orders.items()} == expected
    assert str(orders["office-0"]["gross"]) == "15.031110"
    assert (orders["office-0"]["country"], orders["office-0"]["currency"]) == ("Portugal", "EUR")


def test_settled_orders_are_those_of_the_log_also_after_the_worker_was_killed(
    connected: ContainerShop, tmp_path: Path
) -> None:
    urls = {"home": api_urls(connected.settings)}
    with Load(urls, "home", Shopping(1, "connected"), tmp_path / "told", RATE) as load:
        time.sleep(HELD_SECONDS)
        for service in ("connect", "registry", "postgres"):
            kill(connected, service, HELD_SECONDS)
            time.sleep(HELD_SECONDS)
        connected.await_all()
        assert load.finish() == []
    with Shop(api_urls(connected.settings)) as reader:
        reader.await_rest(SECONDS)
    expected = {
        recorded.event.order_id: (
            recorded.event.units,
            recorded.event.gross,
            recorded.event.currency,
            recorded.event.country,
        )
        for recorded in read_evidence(connected.settings.kafka, ["order.events"])
        if isinstance(recorded.event, OrderConfirmed)
    }
    assert len(expected) > 50

    def out() -> dict[str, Any]:
        columns = ("units", "gross_micros", "currency", "country")
        return {
            name: tuple(row[column] for column in columns) for name, row in settled(connected, "").items()
        }

    eventually(lambda: out() == expected, "every confirmed order, and no other")
    query = "SELECT order_id, units, gross, currency, country FROM orders.orders WHERE order_id = ANY($1)"
    shown = rows_of(database_url(connected.settings), query, list(expected))
    assert {row[0]: tuple(row[1:]) for row in shown} == expected
    eventually(lambda: is_healthy(connected.container("connect")), "the worker is healthy again")


def test_the_worker_may_write_its_table_and_no_more(connected: ContainerShop) -> None:
    password = (connected.settings.home / "secrets" / "daybook_office_password").read_text()
    shop_url = database_url(connected.settings)
    _, _, server = shop_url.rpartition("@")
    own = f"postgresql://office_writer:{password}@{server}"
    assert rows_of(of_office(own), "SELECT 1")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        rows_of(own, "SELECT 1")
    for forbidden in ("DELETE FROM settled_orders", "CREATE TABLE another ()"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            rows_of(of_office(own), forbidden)
    config = f"{connected.tool(CONNECT)}/connectors/settled-orders/config"
    response = httpx.get(config, auth=connected.tools_password, trust_env=False, timeout=30)
    assert response.status_code == 200 and password not in response.text


def kill(shop: ContainerShop, service: str, seconds: float) -> None:
    inject(shop.container(service), Failure.KILL, seconds)


def drop(shop: ContainerShop, tmp_path: Path, name: str, text: str) -> None:
    """As a supplier would; `cp` is what docs/reference/containers.md says."""
    (tmp_path / f"{name}.csv").write_text(text)
    shop.docker("cp", "--quiet", str(tmp_path / f"{name}.csv"), f"{shop.container('intake')}:/lists/new/")


def records(shop: ContainerShop, topic: str) -> list[Any]:
    numbers = partitions_of(shop.settings.kafka, topic)
    return list(read_to_end(shop.settings.kafka, topic, dict.fromkeys(numbers, 0)))


def prices(shop: ContainerShop) -> dict[str, tuple[str, str, str]]:
    """Supplier, price and currency by SKU: of each the last."""
    orders = {}
    for record in records(shop, "supplier.prices"):
        price = json.loads(record.value())
        assert record.key().decode() == price["sku"]
        orders[price["sku"]] = (price["supplier"], price["price"], price["currency"])
    return orders


def refused(shop: ContainerShop) -> list[str]:
    return [json.loads(record.value()) for record in records(shop, "supplier.refused")]


def settled(shop: ContainerShop, prefix: str) -> dict[str, asyncpg.Record]:
    query = "SELECT * FROM settled_orders WHERE order_id LIKE $1 || '%'"
    return {
        row["order_id"]: row for row in rows_of(of_office(database_url(shop.settings, USER)), query, prefix)
    }


def rows_of(url: str, query: str, *arguments: object) -> list[asyncpg.Record]:
    async def fetch() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(url, timeout=30)
        try:
            return list(await connection.fetch(query, *arguments))
        finally:
            await connection.close(timeout=30)

    return asyncio.run(fetch())


def post(client: httpx.Client, url: str, key: str, body: object) -> None:
    client.post(url, json=body, headers={"Idempotency-Key": key}).raise_for_status()
