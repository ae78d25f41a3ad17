"""A small line chart as SVG: two logarithmic axes, a line for each series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 120, 40, 55
COLOURS = ("#1b6ca8", "#c2410c", "#15803d", "#7e22ce", "#b91c1c")

Series = Mapping[str, Sequence[tuple[float, float]]]


def chart(title: str, across: str, up: str, series: Series) -> str:
    """The picture. Every coordinate is above zero; points are joined in the order given."""
    points = [point for line in series.values() for point in line]
    x_axis = _Axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
    y_axis = _Axis([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 12}">{escape(across)}</text>',
        f'<text transform="translate(14 {HEIGHT - BOTTOM}) rotate(-90)">{escape(up)}</text>',
    ]
    for value in x_axis.ticks:
        x = x_axis.place(value)
        parts += [
            f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>',
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{value:,.10g}</text>',
        ]
    for value in y_axis.ticks:
        y = y_axis.place(value)
        parts += [
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.10g}</text>',
        ]
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in line]
        parts.append(
            f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in _split(places)]
        at = TOP + 14 * number
        parts.append(f'<text x="{WIDTH - RIGHT + 12}" y="{at + 4}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """Powers of ten from below the least value to above the greatest; `low` and `high` in pixels."""

    def __init__(self, values: Sequence[float], low: float, high: float) -> None:
        self._first = floor(log10(min(values)))
        self._last = max(self._first + 1, ceil(log10(max(values))))
        self._low, self._high = low, high
        self.ticks = [10.0**power for power in range(self._first, self._last + 1)]

    def place(self, value: float) -> float:
        share = (log10(value) - self._first) / (self._last - self._first)
        return self._low + share * (self._high - self._low)


def _split(places: Sequence[str]) -> list[tuple[str, str]]:
    return [(each.partition(",")[0], each.partition(",")[2]) for each in places]
