"""No route ignores a query parameter that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from contracts.lock import load_lock
from infra.log.registry import ClientParameters, create
from services.edge.app import health_application
from services.edge.settings import ApiSettings as InventorySettings
from services.inventory.api import create as inventory_app
from services.order.api import OrderApiSettings as OrderSettings
from services.order.api import create as order_app
from services.projection.api import query_app
from services.projection.engine.settings import QuerySettings

SECRET: dict[str, Any] = {"hash_key": "a key for tests alone"}
APPS: dict[str, Callable[[], FastAPI]] = {
    "order": lambda: order_app(OrderSettings(**SECRET)),
    "inventory": lambda: inventory_app(InventorySettings(**SECRET)),
    "query": lambda: query_app(QuerySettings()),
    "registry": lambda: create(load_lock()),
    "health": lambda: health_application(lambda: None),
}


def client_of(name: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(APPS[name]()), base_url="http://127.0.0.1")


@pytest.mark.parametrize("name", APPS)
async def test_an_unknown_parameter_is_refused_on_every_route(name: str) -> None:
    routes = list(iter_route_contexts(APPS[name]().routes))
    assert len(routes) >= 3
    async with client_of(name) as client:
        for route in routes:
            assert route.path and route.methods
            path = route.path.replace("{", "").replace("}", "")
            for method in route.methods:
                response = await client.request(method, f"{path}?colour=red", json={})
                assert (response.status_code, response.json()["code"]) == (422, "unknown_parameter"), path
                assert response.headers["content-type"] == "application/problem+json"


async def test_the_registry_accepts_the_parameters_of_its_clients() -> None:
    async with client_of("registry") as client:
        given = {field.name: "1" for field in fields(ClientParameters)}
        response = await client.get("/subjects", params=given)
        assert response.status_code == 200
        for endless in ("9" * 5000, "١"):  # as a number it would be too long, or one
            assert (await client.get(f"/schemas/ids/{endless}")).json()["error_code"] == 40403
            subject = "order.events-daybook.order.OrderPlaced"
            response = await client.get(f"/subjects/{subject}/versions/{endless}")
            assert response.json()["error_code"] == 42202
