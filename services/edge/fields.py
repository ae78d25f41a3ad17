"""The kinds of field that requests are made of; msgspec checks them while it decodes.

`$(?!\\n)`: Python's `$` alone would let a trailing line break through.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

from msgspec import Meta

from services.edge.http import invalid

EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
MAX_LINES = 1000
MAX_QUANTITY = 1_000_000
FUTURE_TOLERANCE_MICROS = 5_000_000  # clocks differ a little

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,63}$(?!\n)"
_TEXT_PATTERN = r"^[^\x00-\x1f\x7f]*$(?!\n)"
_CURRENCY_PATTERN = r"^[A-Z]{3}$(?!\n)"
_PRICE_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$(?!\n)"
_AMOUNT_PATTERN = r"^-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$(?!\n)"
_DECIMAL = "up to nine digits, and up to six behind the point"
IN_WORDS = {
    ID_PATTERN: "up to 64 letters, digits and ._~- beginning with a letter or digit",
    _TEXT_PATTERN: "text without control characters",
    _CURRENCY_PATTERN: "three capital letters, such as GBP",
    _PRICE_PATTERN: f'an exact decimal of at least 0, such as "2.55": {_DECIMAL}',
    _AMOUNT_PATTERN: f'an exact decimal, such as "2.55" or "-2.55": {_DECIMAL}',
}

Id: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN)]
"""Up to 64 letters, digits and `._~-`, beginning with a letter or digit: safe in keys, paths and tokens."""
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern=_TEXT_PATTERN)]
ShortText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64, pattern=_TEXT_PATTERN)]
Currency: TypeAlias = Annotated[str, Meta(pattern=_CURRENCY_PATTERN)]
Quantity: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_QUANTITY)]
Price: TypeAlias = Annotated[str, Meta(pattern=_PRICE_PATTERN)]
Amount: TypeAlias = Annotated[str, Meta(pattern=_AMOUNT_PATTERN)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


def occurred_at(given: datetime | None, now: int) -> int:
    """Business time in micros UTC: what was given, or `now`. Raises `Problem` if future or before 1970."""
    if given is None:
        return now
    micros = (given - EPOCH_START) // timedelta(microseconds=1)
    if micros > now + FUTURE_TOLERANCE_MICROS:
        raise invalid("occurred_at", "lies in the future")
    if micros < 0:
        raise invalid("occurred_at", "lies before 1970")
    return micros
