"""What more slots give, in sentences that are computed from the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.bench.harness import Measured
from tests.bench.statistics import Spread

FULL = 0.9  # of the cores, or of the one core that a Python process can use
SMALL, OTHER_WORK = 0.05, 0.5  # cores
BROKER, REST = "cpu broker", "cpu all else"
SLOT = "slot"


@dataclass(frozen=True)
class ScalePoint:
    """One number of slots: the figure, and the cores that each process took. `rest`: all other programs."""

    slots: int
    rate: Spread
    broker: float
    workers: dict[str, float]
    others: dict[str, float]
    rest: float

    @property
    def used(self) -> float:
        """All cores that the measured processes took."""
        return self.broker + sum(self.workers.values()) + sum(self.others.values())


def points(row: Measured, slots: dict[str, int]) -> list[ScalePoint]:
    """By the number of slots; `slots` gives that of each contender."""
    return sorted((_point(row, name, count) for name, count in slots.items()), key=lambda point: point.slots)


def sentences(scale: Sequence[ScalePoint], unit: str, cores: int) -> list[str]:
    """What the next slot gives, what the broker takes, and what limits the last point."""
    return [_gains(scale, unit), _costs(scale, unit, cores), _limit(scale[-1], cores)]


def _gains(scale: Sequence[ScalePoint], unit: str) -> str:
    def steps() -> Iterator[str]:
        for before, after in pairwise(scale):
            gain, cores = after.rate.median - before.rate.median, after.used - before.used
            text = f"{after.slots} slots give {after.rate.median / before.rate.median:.2f} times {_slots(before.slots)}"
            if cores >= SMALL:
                text += f" for {cores:.2f} cores more: "
                text += f"the next core gives {gain / cores:,.0f} {unit}" if gain > 0 else "they give nothing"
            yield text

    first = scale[0]
    alone = f"{_slots(first.slots)} gives {first.rate.median:,.0f} {unit} with {first.used:.2f} cores in all"
    return "; ".join([alone, *steps()])


def _costs(scale: Sequence[ScalePoint], unit: str, cores: int) -> str:
    """The costs are those of the first point, where the processes compete least for cores."""
    first = scale[0]
    slot = sum(first.workers.values())
    beside = f"{first.broker / slot:.2f} of a core for the broker"
    if others := sum(first.others.values()):
        beside += f" and {others / slot:.2f} for {', '.join(first.others)}"
    full = cores * first.rate.median / first.used
    shares = ", ".join(f"{point.broker:.2f}" for point in scale)
    counts = ", ".join(str(point.slots) for point in scale[:-1])
    counts = f"{counts} and {_slots(scale[-1].slots)}" if counts else _slots(scale[-1].slots)
    return (
        f"the broker takes {shares} cores at {counts}; each core of a slot needs {beside}, so {cores} cores would be "
        f"full at {full:,.0f} {unit}: {cores * slot / first.used:.1f} of them the slots', "
        f"{cores * first.broker / first.used:.1f} the broker's"
    )


def _limit(last: ScalePoint, cores: int) -> str:
    workers = max(last.workers, key=lambda name: last.workers[name])
    busiest = max(last.others, key=lambda name: last.others[name], default="")
    at = f"at {last.slots} slots"
    share = (
        f"the broker takes {last.broker / last.used * 100:.0f} % of the {last.used:.2f} cores that are used"
    )
    if last.rest >= OTHER_WORK:
        share += f", and other programs took {last.rest:.2f}"
    if last.others.get(busiest, 0.0) >= FULL:
        return f"{at} {busiest} is the limit with {last.others[busiest]:.2f} of a core; {share}"
    if last.used + last.rest >= FULL * cores:
        return f"{at} the {cores} cores are the limit; {share}, a slot at most {last.workers[workers]:.2f} of one"
    if last.workers[workers] >= FULL:
        return f"{at} the slots are the limit: {workers} takes {last.workers[workers]:.2f} of a core; {share}"
    return f"{at} no core is full: the slots wait for the broker, to read and to commit; {share}"


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _point(row: Measured, name: str, slots: int) -> ScalePoint:
    details = dict.fromkeys(
        detail for window in row.windows[name] for detail in window.seen if detail.startswith("cpu ")
    )
    processes = {detail: row.seen(detail, name).median for detail in details}
    broker, rest = processes.pop(BROKER), processes.pop(REST, 0.0)
    named = {detail.removeprefix("cpu "): cores for detail, cores in processes.items()}
    workers = {process: cores for process, cores in named.items() if SLOT in process}
    others = {process: cores for process, cores in named.items() if SLOT not in process}
    return ScalePoint(slots, row.spread(name), broker, workers, others, rest)
