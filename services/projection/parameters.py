"""Query parameters and cursors, checked: whatever is wrong is a 422 that names the parameter."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request

from services.edge.http import invalid, known_parameters
from services.kernel.envelope import parse_time

PAGE = 50
MAX_PAGE = 500
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""In a cursor: a version, units, or micros of a time that PostgreSQL knows."""
Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
# Not \d, which matches the digits of every script; nor fromisoformat alone, which takes any separator.
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s)?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DAY.pattern + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")

Keys = TypeVar("Keys")


def only(request: Request, *known: str) -> Mapping[str, str]:
    """The parameters. Raises `Problem` 422 for one that is not known or stands twice."""
    given = known_parameters(request.query_params, *known)
    for name, text in given.items():
        _storable(name, text)
    return given


def key(request: Request, name: str) -> str:
    """An entity's id in the path."""
    found: str = request.path_params[name]
    _storable(name, found)
    return found


def _storable(name: str, text: str) -> None:
    """PostgreSQL's texts hold every character but one."""
    if "\0" in text:
        raise invalid(name, "no name holds a zero character")


def limit(given: Mapping[str, str]) -> int:
    return whole(given, "limit", PAGE, 1, MAX_PAGE)


def whole(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise invalid(name, f"a whole number from {least} to {most}")
    return int(text)


def seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """A duration: `2`, `0.5`, `2s` or `500ms`."""
    text = given.get(name)
    if text is None:
        return default
    duration = _DURATION.fullmatch(text)
    if duration is None:
        raise invalid(name, "a duration such as 2, 0.5, 2s or 500ms")
    return float(duration[1]) / (1000 if duration[2] == "ms" else 1)


def moment(given: Mapping[str, str], name: str) -> int | None:
    """Micros UTC of an RFC 3339 time, or of the beginning of a day."""
    text = given.get(name)
    return None if text is None else moment_of(text, name)


def moment_of(text: str, name: str) -> int:
    # a plus sign that was not percent-encoded arrives as a space
    text = text.replace(" ", "+")
    try:
        if _DAY.fullmatch(text):
            start = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            return int(start.timestamp()) * 1_000_000
        if _TIME.fullmatch(text):
            return parse_time(text)
    except (ValueError, OverflowError):
        pass  # of the right form, and no such day or hour
    raise invalid(name, "a day (2010-12-01) or a time with its offset (2010-12-01T08:26:00Z)")


def day(given: Mapping[str, str], name: str) -> date | None:
    text = given.get(name)
    try:
        if text is None or _DAY.fullmatch(text):
            return None if text is None else date.fromisoformat(text)
    except ValueError:
        pass
    raise invalid(name, "a day such as 2010-12-01")


def choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str | None:
    text = given.get(name)
    if text is not None and text not in choices:
        raise invalid(name, f"one of {', '.join(choices)}")
    return text


def to_cursor(keys: Any) -> str:
    """The keys of the last row of a page, opaque to the client."""
    return urlsafe_b64encode(msgspec.json.encode(keys)).rstrip(b"=").decode()


def cursor(given: Mapping[str, str], shape: type[Keys]) -> Keys | None:
    text = given.get("cursor")
    if text is None:
        return None
    try:
        return msgspec.json.decode(
            urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)), type=shape
        )
    except (binascii.Error, UnicodeError, ValueError, msgspec.MsgspecError):
        raise invalid("cursor", "not a cursor of this query: take `next` of the page before") from None
