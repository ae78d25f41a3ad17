"""The parts that the documents of all write APIs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from services.edge.problems import EDGE, EDGE_OF_BODIES, Code, documented
from services.edge.unavailable import SITE_PROBLEMS
from services.edge.write_headers import CORRELATION_PATTERN

_RESPONSE_HEADERS = {
    "ETag": ("The entity's version, in quotes.", '^"[0-9]+"$'),
    "Consistency-Token": ("Send it to the query API to read at least this version.", "^[A-Za-z0-9_-]+$"),
    "X-Correlation-Id": ("Joins all events that follow from one request.", CORRELATION_PATTERN),
}
_REPLAYED = {
    "description": "`true` if this is the recorded outcome of a repeated request.",
    "schema": {"type": "string", "const": "true"},
}


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


def write_problems(about: Mapping[str, Any], refused: Mapping[str, Code]) -> dict[int | str, dict[str, Any]]:
    """Returns the problems of a write; `about`: the entity in examples, `refused`: the domain's codes."""
    repeat = {**about, "idempotency_key": "4711"}
    site_problems = {code: Code(status, reason, repeat) for code, status, reason in SITE_PROBLEMS.values()}
    return documented(
        EDGE,
        EDGE_OF_BODIES,
        {
            "version_conflict": Code(412, "the entity is at another version; `ETag` names it", about),
            "idempotency_key_reused": Code(422, "the key was used for another request", about),
            "command_failed": Code(500, "the command failed and was set aside for an operator", about),
            "outcome_unknown": Code(503, "the outcome did not arrive in time; safe to repeat", repeat),
            "overloaded": Code(503, "too many commands wait; it was not sent", repeat),
            "log_unavailable": Code(503, "the log did not accept the command", repeat),
            "stream_forked": Code(503, "the entity's stream has stopped; an operator decides", about),
            **site_problems,
        },
        refused,
    )
