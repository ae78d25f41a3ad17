"""The parameters of reads: their patterns, and the parsers of durations, times and cursors."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, date, datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from fastapi import Header, Path, Query
from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema

from services.edge.problems import IN_WORDS, invalid
from services.kernel.record.envelope import parse_time

PAGE = 50
MAX_PAGE = 500
# PostgreSQL's texts hold every character but one
NAME_PATTERN = r"^[^\x00]*$"
SEGMENT_PATTERN = r"^[^/\x00]+$"
CURSOR_PATTERN = r"^[A-Za-z0-9_-]+={0,2}$"
TOKEN_PATTERN = r"^[A-Za-z0-9_-]+$"
# Not \d, which matches the digits of every script; nor fromisoformat alone, which takes any separator.
WHOLE_PATTERN = r"^-?[0-9]{1,18}$"
DURATION_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})?(ms|s)?$"
DAY_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# in a query, a plus sign that was not percent-encoded arrives as a space
_DAY_OR_TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+ -][0-9]{2}:[0-9]{2}))?"
)
MOMENT_PATTERN = rf"^{_DAY_OR_TIME}$"
AS_OF_PATTERN = rf"^(version:[1-9][0-9]{{0,17}}|{_DAY_OR_TIME})$"
_MOMENT_IN_WORDS = "a day (2010-12-01) or a time with its offset (2010-12-01T08:26:00Z)"
_NO_CURSOR = "not a cursor of this query: take `next` of the page before"
IN_WORDS |= {
    NAME_PATTERN: "no name holds a zero character",
    SEGMENT_PATTERN: "no name holds a zero character",
    CURSOR_PATTERN: _NO_CURSOR,
    TOKEN_PATTERN: "not a consistency token",
    AS_OF_PATTERN: f"version:<n> with n from 1, or {_MOMENT_IN_WORDS}",
}

Keys = TypeVar("Keys")


def whole(text: str) -> int:
    return int(_matched(WHOLE_PATTERN, text, "a whole number"))


def seconds(text: str) -> float:
    """Parses a duration: `2`, `0.5`, `2s` or `500ms`."""
    duration = _matched(DURATION_PATTERN, text, "a duration such as 2, 0.5, 2s or 500ms")
    return float(duration.rstrip("ms")) / (1000 if duration.endswith("ms") else 1)


def moment(text: str) -> int:
    """Returns micros UTC of an RFC 3339 time, or of the start of a day."""
    value = _matched(MOMENT_PATTERN, text, _MOMENT_IN_WORDS).replace(" ", "+")
    try:
        if "T" in value:
            return parse_time(value)
        start = datetime.combine(date.fromisoformat(value), datetime.min.time(), UTC)
        return int(start.timestamp()) * 1_000_000
    except (ValueError, OverflowError):  # well-formed, but not a day or hour
        raise ValueError(_MOMENT_IN_WORDS) from None


def day(text: str) -> date:
    try:
        return date.fromisoformat(_matched(DAY_PATTERN, text, ""))
    except ValueError:
        raise ValueError("a day such as 2010-12-01") from None


def _matched(pattern: str, text: str, in_words: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError(in_words)
    return text


def to_cursor(keys: Any) -> str:
    """Encodes the keys of a page's last row, opaque to the client."""
    return urlsafe_b64encode(msgspec.json.encode(keys)).rstrip(b"=").decode()


def from_cursor(cursor: str | None, shape: TypeAdapter[Keys]) -> Keys | None:
    """Returns the keys in a cursor. Raises `Problem` 422 for a malformed cursor or one of another query."""
    if cursor is None:
        return None
    try:
        return shape.validate_json(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        raise invalid("cursor", _NO_CURSOR) from None


def _text(pattern: str, **more: Any) -> WithJsonSchema:
    """Documents a value that is parsed from text."""
    return WithJsonSchema({"type": "string", "pattern": pattern, **more})


Number: TypeAlias = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
"""In a cursor: a version, units, or micros of a time that PostgreSQL knows."""
Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
Duration: TypeAlias = Annotated[float, BeforeValidator(seconds), _text(DURATION_PATTERN, examples=["2s"])]
Moment: TypeAlias = Annotated[int, BeforeValidator(moment), _text(MOMENT_PATTERN, examples=["2010-12-01"])]
Day: TypeAlias = Annotated[date, BeforeValidator(day)]

Limit: TypeAlias = Annotated[
    int, Field(ge=1, le=MAX_PAGE), BeforeValidator(whole), Query(description="Rows of a page.")
]
Cursor: TypeAlias = Annotated[
    str | None, Query(pattern=CURSOR_PATTERN, description="`next` of the page before.")
]
Country: TypeAlias = Annotated[Name | None, Query(description="The customer's country.", examples=["France"])]
ConsistencyToken: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Consistency-Token",
        pattern=TOKEN_PATTERN,
        description="A write's token: the response is at least as new as that write, for the token's own "
        "stream.",
    ),
]
Wait: TypeAlias = Annotated[
    Duration | None,
    Query(description="How long to wait for the token's write: `2`, `0.5s`, `500ms`."),
]
OrderId: TypeAlias = Annotated[
    str, Path(pattern=SEGMENT_PATTERN, description="The order.", examples=["536365"])
]
