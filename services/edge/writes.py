"""From an HTTP request to a command, from its outcome to the response: shared by all write APIs.

The command id is the UUIDv5 of the entity, the `Idempotency-Key` and the principal, so that nobody gets the outcome of
another one's request. Without a key, one is generated and returned in a 503 or 507, so that every request can be
repeated safely.

Before, the principal was no part of the id. For one retry window after the start of an API, its commands have the
former id too: a repeat of a request from before the upgrade gets the recorded outcome.
"""

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
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
from contracts.topics import TOPICS
from services.edge.app import application
from services.edge.durability import THIS_SITE, Durability, Mark, PeerLog, mark_of
from services.edge.gateway import Gateway
from services.edge.identity import KEYS_UNAVAILABLE, TOKENS, caller
from services.edge.limits import RATE_LIMITED, TOO_MANY_PENDING
from services.edge.middleware import COMMAND_KEY, CORRELATION_PATTERN, CorrelationMiddleware, ProvenResponses
from services.edge.problems import (
    EDGE,
    EDGE_OF_BODIES,
    RETRY_AFTER_SECONDS,
    SITE_PROBLEMS,
    Code,
    Problem,
    Unavailable,
    documented,
)
from services.edge.requests import ChangeRequest, WriteHeaders, expected_version, require_once, traceparent
from services.edge.server import end_process
from services.edge.settings import ApiSettings
from services.kernel.model.process import derived_id
from services.kernel.record.envelope import AuthContext, Metadata, Token, now_micros, uuid7
from services.kernel.worker.entities import NO_VERSION

NAMESPACE = uuid5(NAMESPACE_URL, "urn:daybook:command").bytes

COMMANDS = Counter("daybook_http_commands_total", "Commands with a response over HTTP", ["type", "kind"])
_RESPONSE_HEADERS = {
    "ETag": ("The entity's version, in quotes.", '^"[0-9]+"$'),
    "Consistency-Token": ("Send it to the query API to read at least this version.", "^[A-Za-z0-9_-]+$"),
    "X-Correlation-Id": ("Joins all events that follow from one request.", CORRELATION_PATTERN),
}
_REPLAYED = {
    "description": "`true` if this is the recorded outcome of a repeated request.",
    "schema": {"type": "string", "const": "true"},
}
KEY_REUSED = "idempotency_key_reused"
_SAFE_TO_REPEAT = "It is safe to repeat this request under the same Idempotency-Key."


@dataclass(frozen=True, slots=True)
class Write:
    """A valid request without its body. `fingerprint`: keyed hash of path, If-Match and body. `both_sites`: the
    response waits for the other site. `former`: it may be a repeat of a request from before keys were per principal."""

    key: str
    fingerprint: str
    expected_version: int | None
    correlation_id: str
    traceparent: str
    auth: AuthContext
    both_sites: bool = False
    former: bool = False

    def metadata(self, entity_id: str, command_type: str) -> Metadata:
        """Returns the envelope of the command to this entity, for `Gateway.send`."""
        return Metadata(
            id=command_id(entity_id, self.key, self.auth.id),
            type=command_type,
            subject=entity_id,
            source="",
            recorded_at=now_micros(),
            correlation_id=self.correlation_id,
            causation_id=self.correlation_id,
            epoch=0,
            request_hash=self.fingerprint,
            expected_version=self.expected_version,
            traceparent=self.traceparent,
            auth=self.auth,
            former_id=command_id(entity_id, self.key) if self.former else "",
        )


def entity_of_key(key: str, subject: str = "") -> str:
    """Returns the id of an entity that the request creates without naming it; a repeat gets the same id. `subject`: the
    principal's, empty where tokens are not verified."""
    return derived_id(NAMESPACE, f"{key}\n{subject}" if subject else key)


def command_id(entity_id: str, key: str, subject: str = "") -> str:
    """Returns the id of the command that the principal's `key` stands for at this entity. No part contains a line
    break."""
    return derived_id(NAMESPACE, f"{entity_id}\n{key}\n{subject}" if subject else f"{entity_id}\n{key}")


@dataclass(frozen=True)
class Resource:
    """The entities that a write API changes: `stream` in tokens, `field` in bodies, `location` for reads.
    `not_found`: codes of refusals that become a 404; `exists`: that of an id that is in use."""

    stream: str
    field: str
    location: str
    not_found: frozenset[str] = frozenset()
    exists: str = ""


class Writer:
    """Sends commands for one kind of resource and builds the responses."""

    def __init__(
        self,
        gateway: Gateway,
        resource: Resource,
        hash_key: bytes,
        peer: PeerLog | None = None,
        former_keys_hours: float = 0.0,
    ) -> None:
        """`peer`: the other site's log, where there are two sites. `former_keys_hours`: see `ApiSettings`."""
        self._former_until = time.monotonic() + former_keys_hours * 3600
        self._gateway = gateway
        self._resource = resource
        self._hash_key = hash_key
        self._peer = peer

    def read(self, request: Request, headers: WriteHeaders, body: BaseModel) -> Write:
        """Reads the request. Raises `Problem`. The fingerprint is a wire format (golden values)."""
        require_once(request.scope["headers"])
        version = expected_version(headers.if_match)
        if headers.durability and self._peer is None:
            raise Problem(422, "single_site", "there is no other site", field="Durability")
        digest = hashlib.blake2b(request.scope["path"].encode(), key=self._hash_key, digest_size=16)
        digest.update(b"\n%d\n" % version if version is not None else b"\n\n")
        digest.update(body.__pydantic_serializer__.to_json(body))
        key = request.scope["state"][COMMAND_KEY] = headers.idempotency_key or uuid7()
        auth = caller(request).auth
        repeated = bool(auth.id and headers.idempotency_key)
        return Write(
            key=key,
            fingerprint=digest.hexdigest(),
            expected_version=version,
            correlation_id=request.scope["state"]["correlation_id"],
            traceparent=traceparent(headers.traceparent),
            auth=auth,
            both_sites=headers.durability is not None,
            former=repeated and time.monotonic() < self._former_until,
        )

    async def change(
        self, request: Request, headers: WriteHeaders, entity_id: str, body: ChangeRequest
    ) -> Response:
        """Sends the command of a request that names its entity. Raises `Problem`."""
        write = self.read(request, headers, body)
        outcome = await self.send(write, entity_id, body.command(entity_id, now_micros()))
        return await self.respond(write, outcome)

    async def new_entity(self, write: Write, command: Callable[[str], Any]) -> str:
        """Returns the id of an entity that the request creates without naming it: of the same one, if it did so before
        keys were per principal. Raises `Problem`.

        The former command is sent with an expected version that matches nothing: if it was executed, its outcome comes
        back; if not, it never will be.
        """
        former, own = entity_of_key(write.key), entity_of_key(write.key, write.auth.id)
        if write.former:
            request = write.metadata(former, (sent := command(former)).TYPE)
            request = request._replace(id=request.former_id, former_id="", expected_version=NO_VERSION)
            outcome = await self._outcome(write, sent, request, own)
            if outcome.kind == "failed" or (outcome.replayed and outcome.kind != "conflict"):
                return former
        return own

    async def _outcome(self, write: Write, command: Any, request: Metadata, entity_id: str) -> Outcome:
        """Raises `Problem` about this entity if there is none."""
        try:
            if self._peer is not None:
                await self._peer.admit(self._gateway, both_sites=write.both_sites)
            return await self._gateway.send(command, request)
        except Unavailable as error:
            _counted(command.TYPE, "unanswered").inc()
            raise _unavailable(error, write.key, {self._resource.field: entity_id}) from error

    async def send(self, write: Write, entity_id: str, command: Any) -> Outcome:
        """Returns the outcome of an accepted command. Raises `Problem` for every other outcome."""
        request = write.metadata(entity_id, command.TYPE)
        outcome = await self._outcome(write, command, request, entity_id)
        _counted(command.TYPE, "replayed" if outcome.replayed else outcome.kind).inc()
        if outcome.kind != "accepted":
            durability = await self._durability(write, outcome, mark_of(outcome))
            raise self._refusal_problem(write.key, outcome, durability)
        if self._peer is not None:
            self._peer.acknowledge(outcome)
        return outcome

    async def respond(
        self,
        write: Write,
        outcome: Outcome,
        *,
        created: bool = False,
        settlement: tuple[str, int, str, int] | None = None,
    ) -> Response:
        """Returns 201 or 200, or 202 for what was to be on both sites and is not. `settlement`: a later status,
        version, event id and epoch, if the request waited."""
        event_id = outcome.event_ids[-1] if outcome.event_ids else ""
        recorded = outcome.status, outcome.version, event_id, outcome.epoch
        status, version, event_id, epoch = settlement or recorded
        # An outcome that an earlier version recorded has no epoch.
        stream, epoch = f"{self._resource.stream}/{outcome.subject}", epoch or self._gateway.epoch
        token = Token(stream, version, event_id, epoch)
        headers = {"ETag": f'"{version}"', "Consistency-Token": token.encode(), **_replayed(outcome)}
        if created:
            headers["Location"] = self._resource.location + outcome.subject
        body = {
            self._resource.field: outcome.subject,
            "version": version,
            "status": status,
            "command_id": outcome.command_id,
        }
        durability = await self._durability(write, outcome, event_id or mark_of(outcome))
        status_code = 201 if created and outcome.event_ids else 200
        if durability == THIS_SITE:
            status_code = 202
        return Response(
            msgspec.json.encode(body | _about(durability)), status_code, headers, "application/json"
        )

    async def _durability(self, write: Write, outcome: Outcome, mark: Mark) -> Durability | None:
        """Returns where the outcome is; None if the request does not wait for the other site, or if the outcome is
        not recorded at all."""
        if not write.both_sites or self._peer is None:
            return None
        if outcome.kind == "failed" or outcome.code == KEY_REUSED:
            return None
        return await self._peer.durability(mark, outcome.subject, repeated=outcome.replayed)

    def _refusal_problem(self, key: str, outcome: Outcome, durability: Durability | None) -> Problem:
        about: dict[str, Any] = {self._resource.field: outcome.subject, "version": outcome.version}
        about |= {"command_id": outcome.command_id, **_about(durability)}
        headers = _replayed(outcome)
        if outcome.kind == "failed" and outcome.code == "stream_forked":
            detail = f"{outcome.reason}. {_SAFE_TO_REPEAT}"
            about["idempotency_key"] = headers["Idempotency-Key"] = key
            return Problem(503, outcome.code, detail, headers=headers, **about)
        if outcome.kind == "failed":
            detail = "the command was set aside for an operator to look at"
            return Problem(500, "command_failed", detail, headers=headers, **about)
        if outcome.kind == "conflict":
            headers["ETag"] = f'"{outcome.version}"'
            return Problem(412, "version_conflict", outcome.reason, headers=headers, **about)
        status = 404 if outcome.code in self._resource.not_found else 409
        if status == 404 or outcome.code in (KEY_REUSED, self._resource.exists):
            about["version"] = 0  # it may be another customer's
        if outcome.code == KEY_REUSED:
            return Problem(422, outcome.code, outcome.reason, field="Idempotency-Key", **about)
        return Problem(status, outcome.code, outcome.reason, headers=headers, **about)


class WriteApi:
    """The write API of one service: the gateway to its commands, the writer of responses, the application."""

    def __init__(self, service: str, settings: ApiSettings, resource: Resource) -> None:
        """`resource.location` is a path of the query API."""
        self.gateway = Gateway(service, settings, on_fatal=end_process)
        self._max_pending = settings.max_pending
        resource = replace(resource, location=settings.query_url + resource.location)
        self._peer = PeerLog(settings, TOPICS[service]) if settings.peer_kafka else None
        hash_key = settings.hash_key.get_secret_value().encode()
        self.writer = Writer(self.gateway, resource, hash_key, self._peer, settings.former_keys_hours)

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
            if self._peer is not None:
                await self._peer.close()
            await self.gateway.close()

        app = application(
            [routes],
            self.gateway.not_ready,
            lifespan,
            title=title,
            about=about,
            max_pending=self._max_pending,
        )
        if self._peer is not None:
            app.add_middleware(ProvenResponses, unavailable=self._problem)
        app.add_middleware(CorrelationMiddleware)
        return app

    def _problem(self, key: str) -> Problem | None:
        error = self.gateway.unavailable()
        return None if error is None else _unavailable(error, key, {})


def _unavailable(error: Unavailable, key: str, entity: Mapping[str, str]) -> Problem:
    about = {**entity, "idempotency_key": key, **error.members}
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS), "Idempotency-Key": key}
    return Problem(error.status, error.code, f"{error}. {_SAFE_TO_REPEAT}", headers=headers, **about)


@cache
def _counted(command_type: str, kind: str) -> Counter:
    return COMMANDS.labels(command_type, kind)


def _replayed(outcome: Outcome) -> dict[str, str]:
    return {"Idempotency-Replayed": "true"} if outcome.replayed else {}


def _about(durability: Durability | None) -> dict[str, str]:
    return {} if durability is None else {"durability": durability}


def succeeded(
    about: str, model: type[BaseModel], example: Mapping[str, Any], *, created: bool = False
) -> dict[str, Any]:
    """Returns a success for FastAPI's `responses`, with the headers of every write."""
    headers: dict[str, Any] = {
        name: {"description": description, "required": True, "schema": {"type": "string", "pattern": pattern}}
        for name, (description, pattern) in _RESPONSE_HEADERS.items()
    }
    headers["Idempotency-Replayed"] = _REPLAYED
    if created:
        headers["Location"] = {"description": "The entity in the query API.", "schema": {"type": "string"}}
    content = {"application/json": {"example": dict(example)}}
    return {"description": about, "model": model, "headers": headers, "content": content}


def write_problems(about: Mapping[str, Any], *refused: Mapping[str, Code]) -> dict[int | str, dict[str, Any]]:
    """Returns the problems of a write; `about`: the entity in examples, `refused`: the domain's codes."""
    repeat = {**about, "idempotency_key": "4711"}
    site_problems = {code: Code(status, reason, repeat) for code, status, reason in SITE_PROBLEMS.values()}
    return documented(
        EDGE,
        TOKENS,
        RATE_LIMITED,
        TOO_MANY_PENDING,
        EDGE_OF_BODIES,
        KEYS_UNAVAILABLE,
        {
            "version_conflict": Code(412, "the entity is at another version; `ETag` names it", about),
            KEY_REUSED: Code(422, "the key was used for another request", about),
            "single_site": Code(
                422, "`Durability: both-sites`, and there is one site", {"field": "Durability"}
            ),
            "command_failed": Code(500, "the command failed and was set aside for an operator", about),
            "outcome_unknown": Code(503, "the outcome did not arrive in time; safe to repeat", repeat),
            "overloaded": Code(503, "too many commands wait; it was not sent", repeat),
            "log_unavailable": Code(503, "the log did not accept the command", repeat),
            "peer_unavailable": Code(
                503, "the other site is not reachable; the command was not sent", repeat
            ),
            "beyond_loss_budget": Code(
                503, "the other site is too far behind; the command was not sent", repeat
            ),
            "stream_forked": Code(503, "the entity's stream has stopped; an operator decides", about),
            **site_problems,
        },
        *refused,
    )
