"""The last check before a response: an unproven site neither acknowledges nor refuses a command."""

from __future__ import annotations

import json

import pytest
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.edge.app import application
from services.edge.middleware import COMMAND_KEY, CorrelationMiddleware, ProvenResponses
from services.edge.problems import Problem
from tests.unit.api.in_process import AppResponse, send_request


class Site:
    """`reason` is why it is unproven, from the end of the handler on."""

    reason = ""

    def unavailable(self, key: str) -> Problem | None:
        return Problem(503, "site_unproven", self.reason, idempotency_key=key) if self.reason else None


async def send(status: int, reason: str, method: str = "POST", key: str = "4711") -> AppResponse:
    site, router = Site(), APIRouter()

    @router.api_route("/", methods=["GET", "POST"])
    async def handle(request: Request) -> Response:
        if key:
            request.scope.setdefault("state", {})[COMMAND_KEY] = key
        site.reason = reason
        if status in (409, 503):
            raise Problem(status, "refused")
        return JSONResponse({}, status)

    app = application([router], lambda: None)
    app.add_middleware(ProvenResponses, unavailable=site.unavailable)
    app.add_middleware(CorrelationMiddleware)
    return await send_request(app, method, "/", body=b"{}")


@pytest.mark.parametrize("status", [200, 201, 409])
async def test_a_success_and_a_refusal_are_replaced(status: int) -> None:
    assert (await send(status, "")).status == status
    response = await send(status, "frozen")
    assert (response.status, json.loads(response.body)["code"]) == (503, "site_unproven")
    assert json.loads(response.body)["idempotency_key"] == "4711"
    assert b"x-correlation-id" in dict(response.headers)


async def test_what_claims_nothing_leaves_as_it_is() -> None:
    assert json.loads((await send(503, "frozen")).body)["code"] == "refused"
    assert (await send(201, "frozen", method="GET")).status == 201
    assert (await send(201, "frozen", key="")).status == 201
