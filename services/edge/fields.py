"""The field types of requests. Patterns follow Rust's rules: `$` matches only the end of the text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

import msgspec
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from services.edge.problems import IN_WORDS, invalid

EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
MAX_LINES = 1000
MAX_QUANTITY = 1_000_000
FUTURE_TOLERANCE_MICROS = 5_000_000  # clocks differ a little

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,63}$"
_TEXT_PATTERN = r"^[^\x00-\x1f\x7f]*$"
_CURRENCY_PATTERN = r"^[A-Z]{3}$"
_PRICE_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$"
_AMOUNT_PATTERN = r"^-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$"
_TAG = r'(W/)?"[!\x23-\x7e]*"'
TAGS_PATTERN = rf"^(\*|{_TAG}( *, *{_TAG})*)$"
_DECIMAL = "up to nine digits, and up to six behind the point"
IN_WORDS |= {
    TAGS_PATTERN: 'an entity tag as an ETag header gave it, such as "3", or *',
    ID_PATTERN: "up to 64 letters, digits and ._~- beginning with a letter or digit",
    _TEXT_PATTERN: "text without control characters",
    _CURRENCY_PATTERN: "three capital letters, such as GBP",
    _PRICE_PATTERN: f'an exact decimal of at least 0, such as "2.55": {_DECIMAL}',
    _AMOUNT_PATTERN: f'an exact decimal, such as "2.55" or "-2.55": {_DECIMAL}',
}


class RequestBody(BaseModel):
    """A request body; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _rfc_3339(value: Any) -> datetime:
    """Parses a time and rounds it to micros. Stricter than pydantic, which accepts numbers too."""
    try:
        return msgspec.convert(value, _AWARE)
    except msgspec.ValidationError:
        raise ValueError("a time with its offset, such as 2010-12-01T08:26:00Z") from None


_AWARE = Annotated[datetime, msgspec.Meta(tz=True)]

Id: TypeAlias = Annotated[str, Field(pattern=ID_PATTERN)]
"""Up to 64 letters, digits and `._~-`, beginning with a letter or digit: safe in keys, paths and tokens."""
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=_TEXT_PATTERN)]
ShortText: TypeAlias = Annotated[str, Field(min_length=1, max_length=64, pattern=_TEXT_PATTERN)]
Currency: TypeAlias = Annotated[str, Field(pattern=_CURRENCY_PATTERN)]
Quantity: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MAX_QUANTITY)]
Price: TypeAlias = Annotated[str, Field(pattern=_PRICE_PATTERN)]
Amount: TypeAlias = Annotated[str, Field(pattern=_AMOUNT_PATTERN)]
Moment: TypeAlias = Annotated[
    AwareDatetime,
    BeforeValidator(_rfc_3339),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


def occurred_at(value: datetime | None, now: int) -> int:
    """Returns business time in micros UTC: the value or `now`. Raises `Problem` if future or before 1970."""
    if value is None:
        return now
    micros = (value - EPOCH_START) // timedelta(microseconds=1)
    if micros > now + FUTURE_TOLERANCE_MICROS:
        raise invalid("occurred_at", "lies in the future")
    if micros < 0:
        raise invalid("occurred_at", "lies before 1970")
    return micros
