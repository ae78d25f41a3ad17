"""A picture of how figures scale: per panel a curve over the number of slots, and below it who takes the cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tests.bench.scaling import ScalePoint

PANEL, TOP, CURVE, GAP, BARS, BOTTOM = 360, 70, 190, 60, 130, 50  # pixels
LEFT, BAR = 64, 44
HEIGHT = TOP + CURVE + GAP + BARS + BOTTOM
# Slots, broker, all other processes, all other programs: they differ in brightness too.
COLOURS = {
    "slots": "#1b6ca8",
    "broker": "#c2410c",
    "APIs and loader": "#7fb77e",
    "all else": "#bbbbbb",
}


@dataclass(frozen=True)
class Panel:
    """One figure: its title, its unit, and its points in the order of slots."""

    title: str
    unit: str
    scale: Sequence[ScalePoint]


def draw(panels: Sequence[Panel], cores: int) -> str:
    """SVG. A dashed line shows what it were if every slot gave as much as the first."""
    width = PANEL * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape('; '.join(_described(panel) for panel in panels))}</title>",
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * PANEL} 0)">')
        parts += [*_curve(panel), *_bars(panel, cores), "</g>"]
    parts += [*_legend(), "</svg>"]
    return "\n".join(parts) + "\n"


def _described(panel: Panel) -> str:
    figures = ", ".join(f"{point.rate.median:,.0f} at {point.slots}" for point in panel.scale)
    return f"{panel.title}: {panel.unit} by slots: {figures}"


def _x(panel: Panel, slots: float) -> float:
    most = max(point.slots for point in panel.scale)
    return LEFT + BAR / 2 + (slots - 1) * (PANEL - LEFT - 2 * BAR) / max(1, most - 1)


def _curve(panel: Panel) -> Iterator[str]:
    first, last = panel.scale[0], panel.scale[-1]
    step, ticks = _ticks(max(point.rate.high for point in panel.scale))
    bottom, highest = TOP + CURVE, step * ticks

    def y(rate: float) -> float:
        return bottom - CURVE * min(rate, highest) / highest

    yield f'<text x="{LEFT}" y="24" font-size="13">{escape(panel.title)}</text>'
    yield f'<text x="{LEFT}" y="{TOP - 10}">{escape(panel.unit)}, by slots</text>'
    for tick in range(ticks + 1):
        at = y(tick * step)
        yield f'<path d="M{LEFT} {at:.1f}H{PANEL - 12}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick * step:,.0f}</text>'
    reached = min(last.slots, highest / first.rate.median)  # where the line leaves the panel
    yield (
        f'<path d="M{_x(panel, 1):.1f} {y(first.rate.median):.1f}L{_x(panel, reached):.1f} '
        f'{y(first.rate.median * reached):.1f}" stroke="#888" stroke-dasharray="4 4" fill="none"/>'
    )
    middle = " ".join(f"{_x(panel, point.slots):.1f},{y(point.rate.median):.1f}" for point in panel.scale)
    yield f'<polyline points="{middle}" fill="none" stroke="{COLOURS["slots"]}" stroke-width="2"/>'
    for point in panel.scale:
        at = _x(panel, point.slots)
        low, high = y(point.rate.low), y(point.rate.high)
        yield f'<path d="M{at:.1f} {low:.1f}V{high:.1f}" stroke="{COLOURS["slots"]}" stroke-width="2"/>'
        yield f'<circle cx="{at:.1f}" cy="{y(point.rate.median):.1f}" r="4" fill="{COLOURS["slots"]}"/>'
        yield f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{point.slots}</text>'


def _bars(panel: Panel, cores: int) -> Iterator[str]:
    top = TOP + CURVE + GAP
    bottom = top + BARS
    yield f'<text x="{LEFT}" y="{top - 10}">cores taken, by slots</text>'
    for tick in range(cores + 1):
        at = bottom - BARS * tick / cores
        yield f'<path d="M{LEFT} {at:.1f}H{PANEL - 12}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick}</text>'
    for point in panel.scale:
        at, left = float(bottom), _x(panel, point.slots) - BAR / 2
        for colour, used in zip(COLOURS.values(), _shares(point), strict=True):
            height = BARS * used / cores
            at -= height
            yield f'<rect x="{left:.1f}" y="{at:.1f}" width="{BAR}" height="{height:.1f}" fill="{colour}"/>'
        middle = left + BAR / 2
        yield f'<text x="{middle:.1f}" y="{bottom + 14}" text-anchor="middle">{point.slots}</text>'


def _shares(point: ScalePoint) -> tuple[float, ...]:
    return sum(point.workers.values()), point.broker, sum(point.others.values()), point.rest


def _legend() -> Iterator[str]:
    x, y = LEFT, HEIGHT - 10
    for name, colour in COLOURS.items():
        yield f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 15}" y="{y}">{escape(name)}</text>'
        x += 40 + 7 * len(name)
    yield f'<path d="M{x} {y - 4}h22" stroke="#888" stroke-dasharray="4 4"/>'
    yield f'<text x="{x + 28}" y="{y}">as much from every slot as from the first</text>'


def _ticks(highest: float) -> tuple[float, int]:
    """A round step and how many of it reach the highest figure; at most eight."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if highest <= 8 * factor * step:
                return factor * step, max(1, -int(-highest // (factor * step)))
        step *= 10
