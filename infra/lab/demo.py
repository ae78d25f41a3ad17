"""The demo's requests to the running shop, apart from their presentation."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import httpx
from deltalake import DeltaTable

from infra.lab.load.clients import Urls
from infra.lab.load.shop import CLIENT_SECONDS, Shop
from infra.lab.retail.expectation import ExpectedDay, RetailExpectation
from infra.lab.retail.plan import LoadPlan
from infra.lab.retail.steps import MICROS, Place, Step, request_of

PAGE = 500


@dataclass(frozen=True, slots=True)
class Script:
    """Days, both ends included.

    `bulk` is loaded at once, `again` a second time; `live` is begun by hand and ended as a load.
    """

    bulk: tuple[date, date]
    live: tuple[date, date]
    again: tuple[date, date]


DECEMBER = Script(
    bulk=(date(2010, 12, 1), date(2010, 12, 22)),
    live=(date(2010, 12, 23), date(2010, 12, 31)),
    again=(date(2010, 12, 6), date(2010, 12, 7)),
)
SMALL = Script(
    bulk=(date(2010, 12, 19), date(2010, 12, 19)),
    live=(date(2010, 12, 20), date(2010, 12, 20)),
    again=(date(2010, 12, 19), date(2010, 12, 19)),
)


@dataclass(frozen=True, slots=True)
class Census:
    """The whole shop, counted through the query API: every version of every order and SKU is one event."""

    events: int
    skus: int
    statuses: Mapping[str, int]


def census(shop: Shop) -> Census:
    """Count orders and SKUs, page by page."""
    orders = list(_pages(shop, "/orders", "orders"))
    stock = list(_pages(shop, "/stock", "stock"))
    return Census(
        events=sum(row["version"] for row in (*orders, *stock)),
        skus=len(stock),
        statuses=Counter(row["status"] for row in orders),
    )


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """An order that was placed, then read at once with the write's token. Times in milliseconds."""

    order_id: str
    lines: int
    write_ms: float
    read_code: int
    read_version: int
    read_status: str
    read_ms: float


def write_and_read(plan: LoadPlan, urls: Urls, shop: Shop, count: int) -> Iterator[OwnWrite]:
    """The plan's first `count` orders, each read straight after it was placed, not yet settled.

    What they need is delivered first. Raises httpx.HTTPStatusError where a write is not accepted.
    """
    orders = [step for step in plan.steps() if isinstance(step, Place)][:count]
    needed = {line.sku for order in orders for line in order.lines}
    with httpx.Client(timeout=CLIENT_SECONDS, trust_env=False, auth=urls.caller) as client:

        def post(step: Step) -> httpx.Response:
            request = request_of(step)
            url = urls[request.api] + request.path
            return client.post(url, content=request.body, headers=request.headers).raise_for_status()

        for delivery in plan.deliveries:
            if delivery.sku in needed:
                post(delivery)
        for order in orders:
            began = time.perf_counter()
            token = post(order).headers["Consistency-Token"]
            written = time.perf_counter()
            read = shop.get(f"/orders/{order.order_id}", {"Consistency-Token": token})
            body: dict[str, Any] = read.json()
            yield OwnWrite(
                order_id=order.order_id,
                lines=len(order.lines),
                write_ms=1000 * (written - began),
                read_code=read.status_code,
                read_version=body.get("version", 0),
                read_status=body.get("status", body.get("code", "")),
                read_ms=1000 * (time.perf_counter() - written),
            )


def mart_differences(folder: Path, expected: RetailExpectation) -> list[tuple[str, str]]:
    """(day, country) where Spark's mart of daily revenue differs from the data, in order.

    Only of the expected days: what is sold by hand is sold today.
    """
    days = {day for day, _ in expected.days}
    mart = {
        (str(row["day"]), row["country"]): ExpectedDay(
            row["orders"], row["units"], int(row["gross"] * MICROS), int(row["refund"] * MICROS)
        )
        for row in DeltaTable(folder).to_pyarrow_table().to_pylist()
        if str(row["day"]) in days
    }
    return sorted(key for key in mart.keys() | expected.days if mart.get(key) != expected.days.get(key))


def _pages(shop: Shop, path: str, name: str) -> Iterator[Mapping[str, Any]]:
    cursor = ""
    while True:
        page = shop.read(path, limit=PAGE, **({"cursor": cursor} if cursor else {}))
        yield from page[name]
        cursor = page["next"]
        if not cursor:
            return
