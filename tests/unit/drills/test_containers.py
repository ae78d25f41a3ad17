"""Drills of containers: what the seed chooses, how long writes rested, and what the report says of it."""

from pathlib import Path
from random import Random

import pytest

from infra.lab.drills.containers import NEVER, Fault, Outage, choose, report_outages, without_writes
from infra.lab.drills.drill import DrillFailed
from infra.lab.drills.report import DrillReport, as_markdown, write
from infra.lab.load.clients import Api, CommandResponse, Urls
from infra.lab.load.probes import read_probe
from infra.stack.compose.engine import Broken, Failure

DEFAULT = ("broker", "inventory-worker", "order-api", "order-worker", "postgres", "projection", "registry")
CLUSTER = ("broker-1", "broker-2", "broker-3", "controller", *DEFAULT[1:])


def chosen(running: tuple[str, ...], seed: int, *names: str) -> list[Fault]:
    failures = [Failure(name) for name in names if name in list(Failure)]
    return choose(running, failures, [name for name in names if name not in list(Failure)], Random(seed))


def responses(*times: tuple[float, float], outcome: str = "accepted") -> list[CommandResponse]:
    """Commands that were sent and answered at these times."""
    return [
        CommandResponse(f"c-{sent}", "order", "o", "key", "home", outcome, 1, "e", "t", 1, False, sent, at)
        for sent, at in times
    ]


def test_the_seed_decides_the_order_of_six_failures_that_differ() -> None:
    assert chosen(DEFAULT, 1) == chosen(DEFAULT, 1)
    assert chosen(DEFAULT, 1) != chosen(DEFAULT, 2)
    assert {str(fault) for fault in chosen(DEFAULT, 1)} == {str(fault) for fault in chosen(DEFAULT, 2)}
    assert len(chosen(DEFAULT, 1)) == 6
    assert Fault(Failure.KILL, "broker") in chosen(DEFAULT, 3)


def test_on_the_cluster_the_seed_decides_which_broker_is_killed() -> None:
    killed = {
        fault.service for seed in range(20) for fault in chosen(CLUSTER, seed) if "broker" in fault.service
    }
    assert killed == {"broker-1", "broker-2", "broker-3"}


@pytest.mark.parametrize(
    ("names", "number"),
    [
        (("kill",), len(DEFAULT)),
        (("broker",), len(Failure)),
        (("kill", "pause", "broker", "registry", "postgres"), 6),
        (("kill", "broker"), 1),
    ],
)
def test_each_failure_that_is_named_happens_to_each_container_that_is_named(
    names: tuple[str, ...], number: int
) -> None:
    faults = chosen(DEFAULT, 1, *names)
    assert len(faults) == len(set(faults)) == number


def test_a_container_that_does_not_run_is_named_with_those_that_do() -> None:
    with pytest.raises(DrillFailed, match="for broker-7; these do: broker, inventory-worker"):
        chosen(DEFAULT, 1, "broker-7")


@pytest.mark.parametrize(
    ("times", "gap", "slowest"),
    [
        # the answer that was under way at 10 comes; then none until 17
        (((9.0, 9.5), (9.8, 10.1), (10.2, 17.0), (17.1, 17.2)), 6.9, 6.8),
        # it touched no write
        (((9.0, 9.5), (10.0, 10.2), (17.0, 17.2)), 7.0, 0.2),
        # a stretch before it does not count
        (((1.0, 1.5), (9.8, 9.9), (10.0, 11.0), (17.0, 17.5)), 6.5, 1.0),
    ],
)
def test_writes_rest_from_the_last_acknowledgement_to_the_next(
    times: tuple[tuple[float, float], ...], gap: float, slowest: float
) -> None:
    assert [*without_writes(responses(*times), 10.0, 17.0)] == pytest.approx([gap, slowest])


def test_a_refusal_is_no_acknowledged_write() -> None:
    received = [*responses((9.0, 9.5), (10.0, 16.0)), *responses((11.0, 12.0), outcome="order_not_found")]
    assert without_writes(received, 10.0, 16.0)[0] == pytest.approx(6.5)


def test_an_outage_without_an_end_breaks_the_promise_and_the_report_says_so(tmp_path: Path) -> None:
    report = DrillReport("containers", 2, "now", typed="./daybook --stack compose drill containers --seed 2")
    over = Outage(Fault(Failure.PAUSE, "broker"), Broken(10.0, 13.0), healthy=14.0, over=16.0)
    reads = read_probe(Urls({Api.QUERY: "http://nobody"}))
    report_outages(report, [over], responses((9.0, 9.5), (10.0, 16.0)), reads)
    assert report.passed
    report_outages(report, [Outage(over.fault, over.broken)], responses((9.0, 9.5)), reads)
    assert not report.passed
    assert NEVER in report.figures.values()
    write(report, tmp_path)
    page = as_markdown(report)
    assert "Written by `./daybook --stack compose drill containers --seed 2`" in page
    assert "- 1. pause broker: until it was mended, s: 3" in page
    assert "| ≤ 120 s | inf s | **no** |" in page
