"""Bodies of requests: read within a bound, decoded, and what is wrong with them said in words."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from services.edge.fields import IN_WORDS
from services.edge.http import Problem, invalid

MAX_BODY_BYTES = 1024 * 1024
MAX_DISCARDED_BYTES = 4 * MAX_BODY_BYTES

Body = TypeVar("Body")

_AT_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED_FIELD = re.compile(r"(?:unknown|required) field `([^`]*)`")
_PATTERNS = {f"Expected `str` matching regex {pattern!r}": words for pattern, words in IN_WORDS.items()}


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises `Problem` 413 above `MAX_BODY_BYTES`, `ClientDisconnect` where it is cut off."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more and size <= MAX_DISCARDED_BYTES:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = event.get("body", b"")
        more = event.get("more_body", False)
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            chunks.append(chunk)
    if size > MAX_BODY_BYTES:
        # a client that is still sending would not read the answer: a little more is taken and thrown away
        raise body_too_large()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def body_too_large() -> Problem:
    detail = f"a body may have at most {MAX_BODY_BYTES:,} bytes"
    return Problem(413, "body_too_large", detail, headers={"Connection": "close"})


def parse_body(decoder: msgspec.json.Decoder[Body], body: bytes) -> Body:
    """The body as the decoder's Struct. Raises `Problem` 422 naming the field, or saying what is not JSON."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        field, detail = _locate(str(error))
        raise invalid(field, detail) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(422, "malformed_json", str(error)) from error


def _locate(text: str) -> tuple[str, str]:
    """Field and detail from msgspec's words: "Expected `int` >= 1 - at `$.lines[2].quantity`".

    Patterns are for machines: people are told what is asked for.
    """
    at, named = _AT_PATH.search(text), _NAMED_FIELD.search(text)
    path = at[1] if at else ""
    detail = text[: at.start()] if at else text
    detail = _PATTERNS.get(detail, detail)
    if named is not None:
        path = f"{path}.{named[1]}" if path else named[1]
    return path, detail
