"""The parts of an order's time: they follow each other and add up to the measured p50."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.bench.harness import Measured, Window
from tests.bench.latency import Span, Trace, where_time_goes
from tests.bench.report import Result, as_json, show

ORDERS = 20
# Milliseconds after a batch begins. The worker waits, reads, gathers, decides and commits.
SPANS = (
    ("take", 0, 5),
    ("gather", 5.5, 7),
    ("begin_transaction", 9, 9.5),
    ("send_offsets_to_transaction", 10, 11),
    ("commit_transaction", 11, 15),
    ("commit", 8, 15.5),
)
STAMPS = {"request": 1, "sent": 1.5, "acknowledged": 3, "outcome": 16, "response": 17}
PARTS = {
    "API: request → command": 0.5,
    "produce → broker": 1.5,
    "broker → worker": 2,
    "behind the running batch": 0,
    "window": 1.5,
    "decide, encode": 3,
    "transaction: records, offsets": 1.5,
    "transaction: commit": 4,
    "outcome → API": 1,
    "API: outcome → response": 1,
    "client, HTTP": 4,
    "p50": 20,
}


def trace() -> Trace:
    """One order in each batch, a batch every 20 ms."""
    begins = [0.02 * number for number in range(ORDERS)]
    return Trace(
        orders={
            f"order-{number}": {name: begin + at / 1000 for name, at in STAMPS.items()}
            for number, begin in enumerate(begins)
        },
        read={f"order-{number}": begin + 0.005 for number, begin in enumerate(begins)},
        spans=[
            Span(name, begin + began / 1000, begin + ended / 1000)
            for begin in begins
            for name, began, ended in SPANS
        ],
    )


def test_the_parts_add_up_to_what_the_client_measured() -> None:
    parts = where_time_goes(trace(), 0, 1, 20.0)
    assert parts == pytest.approx(PARTS, abs=1e-6)
    assert sum(parts.values()) - parts["p50"] == pytest.approx(parts["p50"])


def test_who_comes_while_a_batch_runs_waits_behind_it() -> None:
    late = trace()._replace(read={f"order-{number}": 0.02 * number + 0.025 for number in range(ORDERS - 1)})
    parts = where_time_goes(late, 0, 1, 40.0)
    assert parts["behind the running batch"] == pytest.approx(22 - 2 - 1.5 - 5)


def test_the_bench_prints_the_parts_and_keeps_them() -> None:
    row = Measured("c=16", "orders/s", {"daybook": [Window(1.0)]}, parts=PARTS)
    result = Result("P1", "orders", [row], "0", "0", 1.0)
    text = io.StringIO()
    show(result, Console(file=text, width=120))
    assert "decide, encode" in text.getvalue()
    assert "3.00" in text.getvalue()
    assert as_json(result)["rows"][0]["parts"] == PARTS


def test_without_a_complete_order_there_are_no_parts() -> None:
    """On a busy machine, a short window may have none: the benchmark keeps its other figures."""
    assert where_time_goes(trace(), 1, 2, 20.0) == {}
