"""What the drills measure with: gaps, reports, and clients whose every command the seed decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.lab.drills.drill import Course, Drill, Run
from infra.lab.drills.judgement import for_checker
from infra.lab.drills.report import DrillReport, as_markdown, write
from infra.lab.load.clients import CommandResponse, Request, Urls, longest_gap
from infra.lab.load.orders import Shopping


def response(outcome: str) -> CommandResponse:
    return CommandResponse(
        "c-1", "order", "o-1", "key", "home", outcome, 1, "e-1", "token", 1, False, 10.0, 10.5
    )


@pytest.mark.parametrize(
    ("times", "start", "gap"),
    [
        ([1.0, 2.0, 7.0, 8.0], 0.0, (5.0, 2.0, 7.0)),
        ([8.0, 1.0, 7.0, 2.0], 0.0, (5.0, 2.0, 7.0)),
        ([1.0, 6.0, 7.0, 9.0], 6.5, (2.0, 7.0, 9.0)),
        ([1.0, 6.0], 4.0, (5.0, 1.0, 6.0)),
        ([1.0], 0.0, (0.0, 0.0, 0.0)),
    ],
)
def test_the_longest_gap_that_touches_the_time_asked_about(
    times: list[float], start: float, gap: tuple[float, float, float]
) -> None:
    assert longest_gap(times, start) == gap


def test_the_checker_gets_refusals_by_their_code() -> None:
    refused = for_checker(response("order_not_found"))
    assert (refused.kind, refused.code) == ("refused", "order_not_found")
    assert for_checker(response("accepted")).kind == "accepted"


def test_one_broken_promise_fails_the_drill_and_is_named(tmp_path: Path) -> None:
    report = DrillReport("planned", 3, "now")
    report.at_most("seconds without writes", 4.0, 15.0)
    assert report.passed
    report.none("writes lost", ["c-1", "c-2"])
    assert not report.passed
    write(report, tmp_path)
    assert "NOT all were kept" in (tmp_path / "report.md").read_text()
    assert "| writes lost | none | 2: c-1; c-2 | **no** |" in as_markdown(report)
    assert '"passed": false' in (tmp_path / "report.json").read_text()


def requests_of(seed: int) -> list[Request]:
    """Two hundred commands, each accepted at once, a tenth of a second apart."""
    shopping, requests = Shopping(seed, "test"), []
    for number in range(200):
        requests.append(shopping.next(number / 10))
        shopping.follow_up(requests[-1], number / 10)
    return requests


def test_the_seed_decides_what_clients_send() -> None:
    assert requests_of(1) == requests_of(1)
    assert requests_of(1) != requests_of(2)
    assert {request.kind for request in requests_of(1)} == {
        "order",
        "delivery",
        "shipment",
        "cancellation",
        "return",
    }
    assert len({request.command_id for request in requests_of(1)}) == 200


@dataclass(frozen=True)
class FakeRig:
    """A rig without a shop."""

    urls: Mapping[str, Urls]
    site: str = "home"
    reads_at: str = "home"
    run_id: str = "1"


def test_promises_are_checked_in_order_with_what_the_faults_observed(tmp_path: Path) -> None:
    steps: list[str] = []

    def rig(run: Run) -> FakeRig:
        steps.append(f"rig of {run.target}")
        return FakeRig({})

    def faults(course: Course[FakeRig]) -> int:
        course.running.callback(lambda: steps.append("what runs beside has ended"))
        steps.append("faults")
        return 7

    def keeps(course: Course[FakeRig], observed: int) -> None:
        course.report.promise("first", "7", str(observed), observed == 7)

    def breaks(course: Course[FakeRig], observed: int) -> None:
        course.report.promise("second", "8", str(observed), observed == 8)

    drill = Drill("small", "A claim.", rig=rig, faults=faults, promises=(keeps, breaks))
    report = drill.run("target", 1, tmp_path, steps.append)
    assert steps == ["rig of target", "faults", "what runs beside has ended"]
    assert [(promise.what, promise.kept) for promise in report.promises] == [
        ("first", True),
        ("second", False),
    ]
    assert (report.drill, report.seed, report.passed) == ("small", 1, False)
