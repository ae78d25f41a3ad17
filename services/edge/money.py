"""Money is a decimal string on the wire and `int` micros inside; never a float."""

from __future__ import annotations

MICROS = 1_000_000


def micros(text: str) -> int:
    """`"2.55"` → 2_550_000. The text has at most six decimals, as the request models' pattern demands."""
    whole, _, fraction = text.lstrip("-").partition(".")
    amount = int(whole) * MICROS + int(fraction.ljust(6, "0"))
    return -amount if text.startswith("-") else amount


def decimal_text(amount: int) -> str:
    """2_550_000 → `"2.55"`: the shortest exact decimal with at least two places."""
    whole, fraction = divmod(abs(amount), MICROS)
    digits = f"{fraction:06d}"
    return f"{'-' if amount < 0 else ''}{whole}.{digits[:2]}{digits[2:].rstrip('0')}"
