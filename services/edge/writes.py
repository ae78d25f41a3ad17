"""From an HTTP request to a command, from its outcome to the answer: what the write APIs have in common.

An `Idempotency-Key` is the command's id, scoped to the entity: UUIDv5 of both. Where none is given one is
minted, and told in a 503 or 507, so that every request can be repeated safely.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
import structlog
from prometheus_client import Counter, Histogram
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from contracts.kernel.records import Outcome
from services.edge.bodies import parse_body, read_body
from services.edge.fields import ID_PATTERN, IN_WORDS
from services.edge.gateway import Gateway
from services.edge.http import (
    RETRY_AFTER_SECONDS,
    Problem,
    expected_version,
    idempotency_key,
    invalid,
    known_parameters,
    require_once,
)
from services.edge.unanswered import Unanswered
from services.kernel.envelope import uuid7
from services.kernel.process import derived_id
from services.kernel.tokens import Token

Body = TypeVar("Body", bound=msgspec.Struct)

NAMESPACE = uuid5(NAMESPACE_URL, "urn:daybook:command").bytes
CORRELATION_HEADER = b"x-correlation-id"

COMMANDS = Counter("daybook_http_commands_total", "Commands answered over HTTP", ["type", "kind"])
SECONDS = Histogram("daybook_request_seconds", "From the request to its answer", ["route", "status"])

_ID = re.compile(ID_PATTERN)
_CORRELATION = re.compile(rb"[\x21-\x7e]{1,64}")
# W3C Trace Context: version ff and ids of zeros alone are invalid, and an invalid header is ignored
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SAFE_TO_REPEAT = "It is safe to repeat this request under the same Idempotency-Key."


@dataclass(frozen=True, slots=True)
class Write(Generic[Body]):
    """One valid request. `fingerprint`: keyed hash of route, body and If-Match; `path` and `query` are the
    parameters there."""

    body: Body
    key: str
    fingerprint: str
    expected_version: int | None
    correlation_id: str
    traceparent: str
    path: Mapping[str, str]
    query: Mapping[str, str]

    def entity(self, name: str) -> str:
        """The entity id in the path. Raises `Problem` 422 where it cannot be one."""
        found = self.path[name]
        if not _ID.fullmatch(found):
            raise invalid(name, IN_WORDS[ID_PATTERN])
        return found


class WriteEndpoint(Generic[Body]):
    """A route of a write API as a plain ASGI application: checks the request, lets `execute` answer it."""

    def __init__(
        self,
        body: type[Body],
        execute: Callable[[Write[Body]], Awaitable[Response]],
        *,
        route: str,
        key: bytes,
        parameters: Sequence[str] = (),
    ) -> None:
        self._parameters = parameters
        self._decoder = msgspec.json.Decoder(body)
        self._encoder = msgspec.json.Encoder()
        self._execute = execute
        self._key = key
        # finding a labelled metric takes longer than observing with it
        self._seconds = cache(lambda status: SECONDS.labels(route, status))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(CORRELATION_HEADER, b"")
        correlation_id = given.decode() if _CORRELATION.fullmatch(given) else uuid7()
        structlog.contextvars.bind_contextvars(correlation_id=correlation_id)
        try:
            write = await self._read(scope, headers, receive, correlation_id)
            response = await self._execute(write)
        except Problem as error:
            response = error.response()
        except ClientDisconnect:  # nothing was sent to the log, and nobody waits for a response
            return
        response.raw_headers.append((CORRELATION_HEADER, correlation_id.encode()))
        self._seconds(response.status_code).observe(time.perf_counter() - started)
        await response(scope, receive, send)

    async def _read(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, correlation_id: str
    ) -> Write[Body]:
        if len(headers) < len(scope["headers"]):
            require_once(scope["headers"])
        query = scope["query_string"] and known_parameters(
            QueryParams(scope["query_string"]), *self._parameters
        )
        key, version = idempotency_key(headers), expected_version(headers)
        body = parse_body(self._decoder, await read_body(receive))
        digest = hashlib.blake2b(scope["path"].encode(), key=self._key, digest_size=16)
        digest.update(b"\n%d\n" % version if version is not None else b"\n\n")
        digest.update(self._encoder.encode(body))
        return Write(
            body=body,
            key=key or uuid7(),
            fingerprint=digest.hexdigest(),
            expected_version=version,
            correlation_id=correlation_id,
            traceparent=traceparent(headers),
            path=scope["path_params"],
            query=query or {},
        )


def traceparent(headers: Mapping[bytes, bytes]) -> str:
    """The trace that the request belongs to; empty where the header is absent or invalid."""
    given = headers.get(b"traceparent", b"")
    return given.decode() if _TRACEPARENT.fullmatch(given) else ""


def entity_of_key(key: str) -> str:
    """The id of an entity that the request creates without naming it: a repeat finds it again."""
    return derived_id(NAMESPACE, key)


def command_id(entity_id: str, key: str) -> str:
    """The id of the command that `key` stands for at this entity. Neither part can hold a line break."""
    return derived_id(NAMESPACE, f"{entity_id}\n{key}")


@dataclass(frozen=True)
class Resource:
    """What a write API writes: `stream` in tokens, `field` in bodies, `location` in the query API.

    `not_found` are the codes of refusals that mean 404.
    """

    stream: str
    field: str
    location: str
    not_found: frozenset[str] = frozenset()


class Writer:
    """Sends commands for one kind of resource and words the answers."""

    def __init__(self, gateway: Gateway, resource: Resource) -> None:
        self._gateway = gateway
        self._resource = resource

    async def send(self, write: Write[Any], entity_id: str, command: Any) -> Outcome:
        """The outcome of an accepted command. Raises `Problem` for every other end."""
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
        except Unanswered as error:
            _counted(command.TYPE, "unanswered").inc()
            raise self._unanswered(error, write, entity_id) from error
        _counted(command.TYPE, "replayed" if outcome.replayed else outcome.kind).inc()
        if outcome.kind != "accepted":
            raise self._denied(outcome)
        return outcome

    def answer(
        self, outcome: Outcome, *, created: bool = False, settled: tuple[str, int, str] | None = None
    ) -> Response:
        """201 or 200. `settled` (status, version, event id) came after the outcome, where it was awaited."""
        event_id = outcome.event_ids[-1] if outcome.event_ids else ""
        status, version, event_id = settled or (outcome.status, outcome.version, event_id)
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

    def _denied(self, outcome: Outcome) -> Problem:
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

    def _unanswered(self, error: Unanswered, write: Write[Any], entity_id: str) -> Problem:
        about = {self._resource.field: entity_id, "idempotency_key": write.key, **error.members}
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS), "Idempotency-Key": write.key}
        return Problem(error.status, error.code, f"{error}. {_SAFE_TO_REPEAT}", headers=headers, **about)


@cache
def _counted(command_type: str, kind: str) -> Counter:
    return COMMANDS.labels(command_type, kind)


def _replayed(outcome: Outcome) -> dict[str, str]:
    return {"Idempotency-Replayed": "true"} if outcome.replayed else {}
