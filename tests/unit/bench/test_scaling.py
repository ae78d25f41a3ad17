"""What the next slot gives, with figures that can be checked by hand, and its picture."""

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import pytest

from tests.bench.harness import Measured, Window
from tests.bench.picture import Panel, draw
from tests.bench.scaling import ScalePoint, points, sentences
from tests.bench.statistics import Spread

SVG = "{http://www.w3.org/2000/svg}"


def point(
    slots: int,
    rate: float,
    broker: float,
    each_slot: float,
    others: Mapping[str, float] | None = None,
    rest: float = 0.0,
) -> ScalePoint:
    workers = {f"slot {number}": each_slot for number in range(slots)}
    return ScalePoint(slots, Spread(rate, 0.9 * rate, 1.1 * rate), broker, workers, dict(others or {}), rest)


def limit(last: ScalePoint) -> str:
    return sentences([point(1, 1000, 0.25, 1.0), last], "commands/s", 4)[2]


def test_the_next_core_gives_what_the_rate_gains_for_each_core_more() -> None:
    scale = [point(1, 1000, 0.25, 1.0), point(2, 1900, 0.55, 0.95), point(4, 2200, 1.0, 0.7)]
    assert sentences(scale, "commands/s", 4)[0] == (
        "1 slot gives 1,000 commands/s with 1.25 cores in all; "
        "2 slots give 1.90 times 1 slot for 1.20 cores more: the next core gives 750 commands/s; "
        "4 slots give 1.16 times 2 slots for 1.35 cores more: the next core gives 222 commands/s"
    )


def test_slots_that_cost_cores_and_lower_the_rate_give_nothing() -> None:
    scale = [point(1, 1000, 0.25, 1.0), point(2, 900, 0.55, 0.95)]
    assert sentences(scale, "commands/s", 4)[0].endswith("for 1.20 cores more: they give nothing")


def test_cores_are_full_where_slots_and_broker_and_others_share_them() -> None:
    (_, costs, _) = sentences([point(1, 1000, 0.25, 1.0)], "commands/s", 4)
    assert costs == (
        "the broker takes 0.25 cores at 1 slot; each core of a slot needs 0.25 of a core for the broker, "
        "so 4 cores would be full at 3,200 commands/s: 3.2 of them the slots', 0.8 the broker's"
    )
    (_, costs, _) = sentences([point(1, 1000, 0.25, 1.0, {"api": 0.5, "loader": 0.25})], "commands/s", 4)
    assert (
        "0.25 of a core for the broker and 0.75 for api, loader, so 4 cores would be full at 2,000" in costs
    )


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (
            point(4, 2200, 1.0, 0.7),
            "at 4 slots the 4 cores are the limit; the broker takes 26 % of the 3.80 cores",
        ),
        (point(4, 2200, 0.6, 0.7, rest=0.3), "at 4 slots the 4 cores are the limit"),
        (point(2, 2200, 0.6, 0.95), "at 2 slots the slots are the limit: slot 0 takes 0.95 of a core"),
        (point(2, 2200, 0.6, 0.5, {"api": 0.93}), "at 2 slots api is the limit with 0.93 of a core"),
        (point(2, 2200, 0.6, 0.5), "at 2 slots no core is full: the slots wait for the broker"),
    ],
)
def test_what_limits_is_named(last: ScalePoint, expected: str) -> None:
    assert limit(last).startswith(expected)


def test_points_are_read_from_the_details_of_windows() -> None:
    def windows(rates: Sequence[float], **cores: float) -> list[Window]:
        return [
            Window(rate, {"p50": 3, **{name.replace("_", " "): used for name, used in cores.items()}})
            for rate in rates
        ]

    row = Measured(
        "what",
        "1/s",
        {
            "2 slots": windows(
                [3, 1, 2], cpu_slot_0=0.5, cpu_slot_1=0.75, cpu_broker=0.25, cpu_all_else=0.125
            ),
            "1 slot": windows([1], cpu_slot_0=1, cpu_broker=0.5, cpu_api=2),
        },
    )
    first, second = points(row, {"2 slots": 2, "1 slot": 1})
    assert second == ScalePoint(2, Spread(2, 1, 3), 0.25, {"slot 0": 0.5, "slot 1": 0.75}, {}, 0.125)
    assert first == ScalePoint(1, Spread(1, 1, 1), 0.5, {"slot 0": 1}, {"api": 2}, 0.0)
    assert first.used == 3.5


def test_the_picture_shows_every_point_and_stacks_the_cores() -> None:
    scale = [
        point(1, 1000, 0.25, 1.0),
        point(2, 1900, 0.5, 1.0, {"api": 0.5}, 0.25),
        point(4, 2200, 1.0, 0.75),
    ]
    root = ElementTree.fromstring(
        draw([Panel("loop & co", "commands/s", scale), Panel("shop", "lines/s", scale)], 4)
    )
    assert root.findtext(f"{SVG}title") == (
        "loop & co: commands/s by slots: 1,000 at 1, 1,900 at 2, 2,200 at 4; "
        "shop: lines/s by slots: 1,000 at 1, 1,900 at 2, 2,200 at 4"
    )
    panel, _ = root.findall(f"{SVG}g")
    heights = [float(circle.attrib["cy"]) for circle in panel.findall(f"{SVG}circle")]
    assert heights == sorted(heights, reverse=True)  # a higher rate is nearer to the top
    assert len(heights) == 3
    bars = [float(bar.attrib["height"]) for bar in panel.findall(f"{SVG}rect")]
    of_core = bars[0] / 1.0  # of the first slot
    assert [round(height / of_core, 2) for height in bars] == [1, 0.25, 0, 0, 2, 0.5, 0.5, 0.25, 3, 1, 0, 0]
