"""What the drills measure with: gaps, reports, and clients whose every command the seed decides."""

from pathlib import Path

import pytest

from infra.lab.drills.acknowledged import (
    Acknowledgement,
    AcknowledgementFile,
    longest_gap,
    read_acknowledgements,
)
from infra.lab.drills.report import DrillReport, as_markdown, write
from infra.lab.drills.shopping import Request, Shopping


def acknowledgement(answer: str) -> Acknowledgement:
    return Acknowledgement(
        "c-1", "order", "o-1", "key", "home", answer, 1, "e-1", "token", 1, False, 10.0, 10.5
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


def test_what_clients_were_told_is_read_as_it_was_written(tmp_path: Path) -> None:
    told = [acknowledgement("accepted"), acknowledgement("order_not_found")]
    file = AcknowledgementFile(tmp_path / "told.jsonl")
    for each in told:
        file.append(each)
    file.close()
    assert read_acknowledgements(tmp_path / "told.jsonl") == told


def test_the_checker_is_told_refusals_by_their_code() -> None:
    refused = acknowledgement("order_not_found").for_checker()
    assert (refused.kind, refused.code) == ("refused", "order_not_found")
    assert acknowledgement("accepted").for_checker().kind == "accepted"


def test_one_broken_promise_fails_the_drill_and_is_named(tmp_path: Path) -> None:
    report = DrillReport("planned", 3, "now")
    report.at_most("seconds without writes", 4.0, 15.0)
    assert report.passed
    report.nothing("writes lost", ["c-1", "c-2"])
    assert not report.passed
    write(report, tmp_path)
    assert "NOT all were kept" in (tmp_path / "report.md").read_text()
    assert "| writes lost | none | 2: c-1; c-2 | **no** |" in as_markdown(report)
    assert '"passed": false' in (tmp_path / "report.json").read_text()


def asked(seed: int) -> list[Request]:
    """Two hundred commands, each accepted at once, a tenth of a second apart."""
    shopping, found = Shopping(seed, "test"), []
    for number in range(200):
        found.append(shopping.next(number / 10))
        shopping.answered(found[-1], True, number / 10)
    return found


def test_the_seed_decides_what_clients_ask() -> None:
    assert asked(1) == asked(1)
    assert asked(1) != asked(2)
    assert {request.kind for request in asked(1)} == {
        "order",
        "delivery",
        "shipment",
        "cancellation",
        "return",
    }
    assert len({request.command_id for request in asked(1)}) == 200
