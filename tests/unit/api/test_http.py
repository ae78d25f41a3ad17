from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from fastapi import APIRouter, FastAPI
from prometheus_client import REGISTRY
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from services.edge.app import application, health_application
from services.edge.middleware import CorrelationMiddleware
from services.edge.problems import MAX_BODY_BYTES, Problem
from services.edge.requests import read_body


async def size(request: Request) -> Response:
    return Response(str(len(await read_body(request.receive))))


async def broken(_: Request) -> Response:
    raise ZeroDivisionError("secret")


@pytest.fixture
def app() -> FastAPI:
    routes: list[BaseRoute] = [Route("/size", size, methods=["POST"]), Route("/broken", broken)]
    return application([APIRouter(routes=routes)], lambda: "restoring")


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as opened:
        yield opened


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/none", 404, "not_found"),
        ("GET", "/size", 405, "method_not_allowed"),
        ("POST", "/health/live", 405, "method_not_allowed"),
        ("GET", "/metrics", 404, "not_found"),
    ],
)
async def test_missing_routes_and_methods_are_problems(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == code


async def test_head_is_allowed_wherever_get_is(client: httpx.AsyncClient) -> None:
    assert (await client.post("/health/live")).headers["allow"] == "GET, HEAD"
    whole, head = [await client.request(method, "/health/live") for method in ("GET", "HEAD")]
    assert (head.status_code, head.content, head.headers) == (200, b"", whole.headers)


async def test_an_internal_error_reveals_no_details(client: httpx.AsyncClient) -> None:
    response = await client.get("/broken")
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "secret" not in response.text


async def test_an_internal_error_of_a_write_is_counted_and_has_its_id(app: FastAPI) -> None:
    app.add_api_route("/fails", broken, methods=["POST"])
    app.add_middleware(CorrelationMiddleware)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.post("/fails", headers={"X-Correlation-Id": "mine"})
    assert (response.status_code, response.headers["x-correlation-id"]) == (500, "mine")
    labels = {"route": "/fails", "status": "500"}
    assert REGISTRY.get_sample_value("daybook_request_seconds_count", labels) == 1


async def test_a_body_has_at_most_one_mebibyte(client: httpx.AsyncClient) -> None:
    assert (await client.post("/size", content=b"x" * MAX_BODY_BYTES)).text == str(MAX_BODY_BYTES)
    response = await client.post("/size", content=b"x" * (MAX_BODY_BYTES + 1))
    assert (response.status_code, response.json()["code"]) == (413, "body_too_large")


async def test_a_chunked_body_has_the_same_limit(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b"x" * 65_536

    assert (await client.post("/size", content=chunks())).status_code == 413


async def test_clients_learn_whether_it_is_ready_and_not_why(client: httpx.AsyncClient) -> None:
    response = await client.get("/health/ready")
    assert (response.status_code, response.text) == (503, "unavailable")
    response = await client.get("/health/live")
    assert (response.status_code, response.text) == (200, "live")


async def test_the_other_listener_gives_the_reason_and_metrics() -> None:
    transport = httpx.ASGITransport(health_application(lambda: "restoring"))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as health:
        response = await health.get("/health/ready")
        assert (response.status_code, response.json()["reason"]) == (503, "restoring")
        assert (await health.get("/health/live")).json() == {"status": "live"}
        assert b"# HELP" in (await health.get("/metrics")).content


def test_a_problem_is_rfc_9457() -> None:
    response = Problem(409, "already_shipped", "it left", version=3).response()
    assert msgspec.json.decode(response.body) == {
        "type": "urn:daybook:problem:already_shipped",
        "title": "Conflict",
        "status": 409,
        "code": "already_shipped",
        "detail": "it left",
        "version": 3,
    }
