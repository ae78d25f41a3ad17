"""From an HTTP request to a command, from its outcome to the response: shared by all write APIs.

The command id is the UUIDv5 of the entity and the `Idempotency-Key`. Without a key, one is generated and
returned in a 503 or 507, so that every request can be repeated safely.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
from fastapi import APIRouter, FastAPI
from prometheus_client import Counter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from contracts.kernel.records import Outcome
from services.edge.app import application
from services.edge.gateway import Gateway, GatewaySettings
from services.edge.problems import RETRY_AFTER_SECONDS, Problem
from services.edge.server import end_process
from services.edge.settings import ApiSettings
from services.edge.unavailable import Unavailable
from services.edge.write_headers import (
    CorrelationMiddleware,
    WriteHeaders,
    expected_version,
    require_once,
    traceparent,
)
from services.kernel.model.process import derived_id
from services.kernel.record.envelope import uuid7
from services.kernel.record.tokens import Token

NAMESPACE = uuid5(NAMESPACE_URL, "urn:daybook:command").bytes

COMMANDS = Counter("daybook_http_commands_total", "Commands with a response over HTTP", ["type", "kind"])
_SAFE_TO_REPEAT = "It is safe to repeat this request under the same Idempotency-Key."


@dataclass(frozen=True, slots=True)
class Write:
    """A valid request without its body. `fingerprint`: keyed hash of path, If-Match and body."""

    key: str
    fingerprint: str
    expected_version: int | None
    correlation_id: str
    traceparent: str


def entity_of_key(key: str) -> str:
    """Returns the id of an entity that the request creates without naming it; a repeat gets the same id."""
    return derived_id(NAMESPACE, key)


def command_id(entity_id: str, key: str) -> str:
    """Returns the id of the command that `key` stands for at this entity. Neither part contains a line break."""
    return derived_id(NAMESPACE, f"{entity_id}\n{key}")


@dataclass(frozen=True)
class Resource:
    """The entities that a write API changes: `stream` in tokens, `field` in bodies, `location` for reads.
    `not_found`: codes of refusals that become a 404."""

    stream: str
    field: str
    location: str
    not_found: frozenset[str] = frozenset()


class Writer:
    """Sends commands for one kind of resource and builds the responses."""

    def __init__(self, gateway: Gateway, resource: Resource, hash_key: bytes) -> None:
        self._gateway = gateway
        self._resource = resource
        self._hash_key = hash_key

    def read(self, request: Request, headers: WriteHeaders, body: BaseModel) -> Write:
        """Reads the request. Raises `Problem`. The fingerprint is a wire format (golden values)."""
        require_once(request.scope["headers"])
        version = expected_version(headers.if_match)
        digest = hashlib.blake2b(request.scope["path"].encode(), key=self._hash_key, digest_size=16)
        digest.update(b"\n%d\n" % version if version is not None else b"\n\n")
        digest.update(body.__pydantic_serializer__.to_json(body))
        return Write(
            key=headers.idempotency_key or uuid7(),
            fingerprint=digest.hexdigest(),
            expected_version=version,
            correlation_id=request.scope["state"]["correlation_id"],
            traceparent=traceparent(headers.traceparent),
        )

    async def send(self, write: Write, entity_id: str, command: Any) -> Outcome:
        """Returns the outcome of an accepted command. Raises `Problem` for every other outcome."""
        try:
            outcome = await self._gateway.send(
                command,
                entity_id=entity_id,
                command_id=command_id(entity_id, write.key),
                request_hash=write.fingerprint,
                expected_version=write.expected_version,
                correlation_id=write.correlation_id,
                traceparent=write.traceparent,
            )
        except Unavailable as error:
            _counted(command.TYPE, "unanswered").inc()
            raise self._unavailable(error, write, entity_id) from error
        _counted(command.TYPE, "replayed" if outcome.replayed else outcome.kind).inc()
        if outcome.kind != "accepted":
            raise self._refusal_problem(outcome)
        return outcome

    def respond(
        self, outcome: Outcome, *, created: bool = False, settlement: tuple[str, int, str] | None = None
    ) -> Response:
        """Returns 201 or 200. `settlement`: a later status, version and event id, if the request waited."""
        event_id = outcome.event_ids[-1] if outcome.event_ids else ""
        status, version, event_id = settlement or (outcome.status, outcome.version, event_id)
        token = Token(f"{self._resource.stream}/{outcome.subject}", version, event_id, self._gateway.epoch)
        headers = {"ETag": f'"{version}"', "Consistency-Token": token.encode(), **_replayed(outcome)}
        if created:
            headers["Location"] = self._resource.location + outcome.subject
        body = {
            self._resource.field: outcome.subject,
            "version": version,
            "status": status,
            "command_id": outcome.command_id,
        }
        status_code = 201 if created and outcome.event_ids else 200
        return Response(msgspec.json.encode(body), status_code, headers, "application/json")

    def _refusal_problem(self, outcome: Outcome) -> Problem:
        about: dict[str, Any] = {self._resource.field: outcome.subject, "version": outcome.version}
        about["command_id"] = outcome.command_id
        headers = _replayed(outcome)
        if outcome.kind == "failed" and outcome.code == "stream_forked":
            detail = f"{outcome.reason}. {_SAFE_TO_REPEAT}"
            return Problem(503, outcome.code, detail, headers=headers, **about)
        if outcome.kind == "failed":
            detail = "the command was set aside for an operator to look at"
            return Problem(500, "command_failed", detail, headers=headers, **about)
        if outcome.kind == "conflict":
            headers["ETag"] = f'"{outcome.version}"'
            return Problem(412, "version_conflict", outcome.reason, headers=headers, **about)
        if outcome.code == "idempotency_key_reused":
            return Problem(422, outcome.code, outcome.reason, field="Idempotency-Key", **about)
        status = 404 if outcome.code in self._resource.not_found else 409
        return Problem(status, outcome.code, outcome.reason, headers=headers, **about)

    def _unavailable(self, error: Unavailable, write: Write, entity_id: str) -> Problem:
        about = {self._resource.field: entity_id, "idempotency_key": write.key, **error.members}
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS), "Idempotency-Key": write.key}
        return Problem(error.status, error.code, f"{error}. {_SAFE_TO_REPEAT}", headers=headers, **about)


class WriteApi:
    """The write API of one service: the gateway to its commands, the writer of responses, the application."""

    def __init__(self, service: str, settings: ApiSettings, resource: Resource) -> None:
        """`resource.location` is a path of the query API."""
        self.gateway = Gateway(
            GatewaySettings(
                service=service,
                bootstrap=settings.kafka,
                site=settings.site,
                replica=settings.replica,
                wait=settings.wait_seconds,
                delivery_timeout=settings.delivery_seconds,
                max_pending=settings.max_pending,
                peer_url=settings.peer_url,
            ),
            on_fatal=end_process,
        )
        resource = replace(resource, location=settings.query_url + resource.location)
        self.writer = Writer(self.gateway, resource, settings.hash_key.get_secret_value().encode())

    def application(
        self,
        routes: APIRouter,
        *,
        title: str,
        about: str,
        before_end: Callable[[], Awaitable[None]] | None = None,
    ) -> FastAPI:
        """The routes with health, metrics and pages. It connects when it starts."""

        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            await self.gateway.start()
            yield
            if before_end is not None:
                await before_end()
            await self.gateway.close()

        app = application([routes], self.gateway.not_ready, lifespan, title=title, about=about)
        app.add_middleware(CorrelationMiddleware)
        return app


@cache
def _counted(command_type: str, kind: str) -> Counter:
    return COMMANDS.labels(command_type, kind)


def _replayed(outcome: Outcome) -> dict[str, str]:
    return {"Idempotency-Replayed": "true"} if outcome.replayed else {}
