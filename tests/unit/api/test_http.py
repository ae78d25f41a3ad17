from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from services.edge.app import application
from services.edge.bodies import MAX_BODY_BYTES, read_body
from services.edge.problems import Problem


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
        ("POST", "/metrics", 405, "method_not_allowed"),
    ],
)
async def test_what_is_not_there_is_a_problem(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code


async def test_what_may_be_read_is_allowed_without_its_body(client: httpx.AsyncClient) -> None:
    assert (await client.post("/metrics")).headers["allow"] == "GET, HEAD"
    whole, head = [await client.request(method, "/health/live") for method in ("GET", "HEAD")]
    assert (head.status_code, head.content, head.headers) == (200, b"", whole.headers)


async def test_a_failure_tells_nothing_of_itself(client: httpx.AsyncClient) -> None:
    answer = await client.get("/broken")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "secret" not in answer.text


async def test_a_body_may_have_a_mebibyte(client: httpx.AsyncClient) -> None:
    assert (await client.post("/size", content=b"x" * MAX_BODY_BYTES)).text == str(MAX_BODY_BYTES)
    answer = await client.post("/size", content=b"x" * (MAX_BODY_BYTES + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_a_body_of_unknown_length_is_cut_too(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b"x" * 65_536

    assert (await client.post("/size", content=chunks())).status_code == 413


async def test_readiness_has_a_reason(client: httpx.AsyncClient) -> None:
    answer = await client.get("/health/ready")
    assert (answer.status_code, answer.json()["reason"]) == (503, "restoring")
    assert (await client.get("/health/live")).status_code == 200
    assert b"# HELP" in (await client.get("/metrics")).content


def test_a_problem_is_rfc_9457() -> None:
    answer = Problem(409, "already_shipped", "it left", version=3).response()
    assert msgspec.json.decode(answer.body) == {
        "type": "urn:daybook:problem:already_shipped",
        "title": "Conflict",
        "status": 409,
        "code": "already_shipped",
        "detail": "it left",
        "version": 3,
    }
