"""What the documents of all write APIs say alike."""

from __future__ import annotations

from typing import Any

from services.edge.openapi import Parameter, Reply, refusal

ID_SCHEMA = {"type": "string", "maxLength": 64}

WRITE_PARAMETERS = (
    Parameter(
        "Idempotency-Key",
        "header",
        "1 to 255 visible characters, scoped to the entity. Repeated with the same body within the retry "
        "window, the answer is the same, refusals and conflicts included; with another body it is a 422.",
        {"type": "string", "minLength": 1, "maxLength": 255},
        example="4711",
    ),
    Parameter(
        "If-Match",
        "header",
        "Only if the entity is at this version: the ETag of an earlier answer, in its quotes.",
        {"type": "string"},
    ),
    Parameter(
        "X-Correlation-Id",
        "header",
        "Found again in the events that follow; minted where it is absent.",
        {"type": "string", "maxLength": 64},
    ),
)

_ANSWER_HEADERS = {
    "ETag": "The entity's version, in quotes.",
    "Consistency-Token": "Send it to the query API to read at least this version.",
    "Idempotency-Replayed": "`true` where this is the remembered answer to a repeated request.",
    "X-Correlation-Id": "The conversation's id.",
}


def done(about: str, body: Any, example: Any, *, created: bool = False) -> Reply:
    """A success with the headers that every write answers."""
    location = {"Location": "The entity in the query API."} if created else {}
    return Reply(about, body, example, _ANSWER_HEADERS | location)


def failures(field: str, entity_id: str) -> dict[int, Reply]:
    """What every write may answer instead."""
    about = {field: entity_id}
    return {
        412: refusal("The entity is at another version; ETag tells which", 412, "version_conflict", **about),
        422: refusal(
            "Bad input; or the Idempotency-Key was used for another request (`idempotency_key_reused`)",
            422,
            "invalid_field",
            detail="Expected `int` >= 1",
            field="quantity",
        ),
        500: refusal("The command failed and was set aside for an operator", 500, "command_failed", **about),
        503: refusal(
            "Not known in time whether it was done; or the entity's stream has stopped (`stream_forked`). "
            "Safe to repeat under the key that the body tells. "
            "`site_passive`: `active_site` is the address of the active site",
            503,
            "outcome_unknown",
            idempotency_key="4711",
            **about,
        ),
        507: refusal(
            "The disk of this site is nearly full; reads go on. Safe to repeat under the same key",
            507,
            "storage_full",
            idempotency_key="4711",
            **about,
        ),
    }
