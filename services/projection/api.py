"""The query API's routes: parameters in, one query, an answer out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import asyncpg
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.edge.http import Problem, invalid
from services.edge.openapi import documentation
from services.edge.serving import application
from services.kernel.envelope import now_micros
from services.kernel.read_model import DATABASE_AWAY, ReadModel
from services.kernel.tokens import MalformedToken, Token
from services.projection import parameters
from services.projection.conversations import queries as conversations
from services.projection.database import QUERY_SECONDS, QUERY_SETTINGS, borrowed, migrate, pool
from services.projection.lag import Lag
from services.projection.metrics import LagMetrics, scraped
from services.projection.openapi import DOCUMENT
from services.projection.order_history import queries as history
from services.projection.orders import queries as orders
from services.projection.parameters import Name, Number
from services.projection.positions import projections
from services.projection.read_models import (
    CONVERSATIONS,
    ORDER_HISTORY,
    ORDERS,
    READ_MODELS,
    SALES_DAILY,
    STOCK,
)
from services.projection.responses import missing, page_response, response
from services.projection.sales_daily import queries as sales
from services.projection.settings import QuerySettings
from services.projection.site import SiteHeaders, Standing
from services.projection.stale import stale
from services.projection.stock import queries as stock
from services.projection.visibility import Notifications, Visibility

_VERSION = re.compile("[1-9][0-9]{0,17}")

log = structlog.get_logger(__name__)


class QueryApi:
    """The handlers, and what they share."""

    def __init__(self, settings: QuerySettings) -> None:
        self._settings = settings
        self._notifications = Notifications()
        self._lag = Lag(settings.kafka, READ_MODELS)
        self.standing = Standing(settings.site, self._lag.seconds)
        self._pool: asyncpg.Pool[Any]
        self._visibility: Visibility

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        settings = self._settings
        async with pool(
            settings.database_url, settings.database_connections, QUERY_SETTINGS, QUERY_SECONDS
        ) as connections:
            async with connections.acquire() as connection:
                await migrate(connection, READ_MODELS)
            self._pool, self._visibility = connections, Visibility(connections, self._notifications)
            following = [
                asyncio.create_task(self._notifications.listen(self._settings.database_url)),
                asyncio.create_task(self.standing.follow(connections)),
                asyncio.create_task(self._lag.follow(connections)),
            ]
            with scraped(LagMetrics(self._lag)):
                yield
            for task in following:
                task.cancel()

    def not_ready(self) -> str | None:
        if not self._notifications.listening:
            return "not connected to PostgreSQL"
        if self.standing.silent() > QUERY_SECONDS:
            return "PostgreSQL does not answer"
        return self._lag.stalled()

    async def order(self, request: Request) -> Response:
        given = parameters.only(request, "at", "wait")
        order_id, at = parameters.key(request, "order_id"), _as_of(given)
        await self._wait(request, given, [ORDERS] if at is None else [ORDER_HISTORY])
        model = ORDERS if at is None else ORDER_HISTORY
        async with borrowed(self._pool) as connection:
            if at is None:
                found = await orders.order(connection, order_id)
            else:
                found = await history.order_as_of(connection, order_id, at)
            old = await stale(connection, model, order_id)
        if found is None:
            raise missing("order", order_id, model, old, "" if at is None else given["at"])
        # A version is what it always was.
        return response(orders.answer(found, None if at and at.version else old), found.version)

    async def orders(self, request: Request) -> Response:
        given = parameters.only(
            request, "status", "customer_id", "country", "from", "to", "limit", "cursor", "wait"
        )
        wanted = orders.Filter(
            parameters.choice(given, "status", orders.STATUSES),
            given.get("customer_id"),
            given.get("country"),
            parameters.moment(given, "from"),
            parameters.moment(given, "to"),
        )
        after, limit = parameters.cursor(given, tuple[Number, Name]), parameters.limit(given)
        await self._wait(request, given, [ORDERS])
        async with borrowed(self._pool) as connection:
            page = await orders.page(connection, wanted, after, limit)
            return await page_response(connection, ORDERS, page, {one.order_id: one for one in page.orders})

    async def history(self, request: Request) -> Response:
        given = parameters.only(request, "limit", "cursor", "wait")
        order_id, after = parameters.key(request, "order_id"), parameters.cursor(given, Number) or 0
        limit = parameters.limit(given)
        await self._wait(request, given, [ORDER_HISTORY])
        async with borrowed(self._pool) as connection:
            page = await history.page(connection, order_id, after, limit)
            page.stale = await stale(connection, ORDER_HISTORY, order_id)
        if not page.events and not after:
            raise missing("order", order_id, ORDER_HISTORY, page.stale)
        return response(page)

    async def stock(self, request: Request) -> Response:
        given, sku = parameters.only(request, "wait"), parameters.key(request, "sku")
        await self._wait(request, given, [STOCK])
        async with borrowed(self._pool) as connection:
            found = await stock.one(connection, sku)
            old = await stale(connection, STOCK, sku)
        if found is None:
            raise missing("stock", sku, STOCK, old)
        return response(stock.answer(found, old), found.version)

    async def stocks(self, request: Request) -> Response:
        given = parameters.only(request, "below", "limit", "cursor", "wait")
        below = parameters.whole(given, "below", 0, -(10**12), 10**12) if "below" in given else None
        after, limit = parameters.cursor(given, tuple[Number, Name]), parameters.limit(given)
        await self._wait(request, given, [STOCK])
        async with borrowed(self._pool) as connection:
            page = await stock.page(connection, below, after, limit)
            return await page_response(connection, STOCK, page, {one.sku: one for one in page.stock})

    async def sales(self, request: Request) -> Response:
        given = parameters.only(request, "from", "to", "country", "limit", "cursor", "wait")
        first, last = parameters.day(given, "from"), parameters.day(given, "to")
        after, limit = parameters.cursor(given, tuple[date, Name, Name]), parameters.limit(given)
        await self._wait(request, given, [SALES_DAILY])
        async with borrowed(self._pool) as connection:
            page = await sales.page(connection, first, last, given.get("country"), after, limit)
            return await page_response(connection, SALES_DAILY, page)

    async def stuck(self, request: Request) -> Response:
        given = parameters.only(request, "older_than", "limit", "cursor", "wait")
        age = parameters.seconds(given, "older_than", self._settings.stuck_seconds)
        after, limit = parameters.cursor(given, tuple[Number, Name]), parameters.limit(given)
        await self._wait(request, given, [CONVERSATIONS])
        async with borrowed(self._pool) as connection:
            since = now_micros() - int(age * 1_000_000)
            page = await conversations.stuck(connection, since, after, limit)
            return await page_response(
                connection, CONVERSATIONS, page, {one.order_id: one for one in page.conversations}
            )

    async def projections(self, request: Request) -> Response:
        parameters.only(request)
        async with borrowed(self._pool) as connection:
            return response(await projections(connection, self._lag.measured))

    async def _wait(
        self, request: Request, given: Mapping[str, str], models: Sequence[ReadModel[Any]]
    ) -> None:
        wait = min(
            parameters.seconds(given, "wait", self._settings.wait_seconds), self._settings.max_wait_seconds
        )
        header = request.headers.get("consistency-token")
        if header is None:
            return
        try:
            token = Token.decode(header)
        except MalformedToken as error:
            raise invalid("Consistency-Token", str(error)) from error
        await self._visibility.visible(token, models, wait)


def query_app(settings: QuerySettings) -> Starlette:
    """The whole query API."""
    api = QueryApi(settings)
    routes = [
        Route("/orders", api.orders),
        Route("/orders/{order_id}", api.order),
        Route("/orders/{order_id}/history", api.history),
        Route("/stock", api.stocks),
        Route("/stock/{sku}", api.stock),
        Route("/sales/daily", api.sales),
        Route("/conversations/stuck", api.stuck),
        Route("/projections", api.projections),
        *documentation(DOCUMENT),
    ]
    app = application(routes, api.not_ready, api.lifespan)
    app.add_middleware(SiteHeaders, standing=api.standing)
    for kind in DATABASE_AWAY:
        app.add_exception_handler(kind, _database_away)
    return app


async def _database_away(request: Request, error: Exception) -> Response:
    log.warning("no answer from PostgreSQL", path=request.url.path, error=repr(error))
    detail = "the read models cannot be read at the moment; nothing is lost, repeat the request"
    return Problem(503, "database_unavailable", detail, headers={"Retry-After": "1"}).response()


def _as_of(given: Mapping[str, str]) -> history.AsOf | None:
    at = given.get("at")
    if at is None:
        return None
    kind, _, number = at.partition(":")
    if kind != "version":
        return history.AsOf(recorded_at=parameters.moment_of(at, "at"))
    if not _VERSION.fullmatch(number):
        raise invalid("at", "version:<n> with n from 1, or a time with its offset")
    return history.AsOf(version=int(number))
