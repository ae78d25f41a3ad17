"""Where the time of an order goes: the parts of one request, from the stamps of a traced API and worker."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tests.bench.generator import Load, send
from tests.bench.rig import Rig

# Medians do not add up. The parts are means over the orders whose total lies between these quantiles.
MIDDLE = (0.45, 0.55)
TRACED = "tests.bench.subjects.traced"
SERVICE = "services.order.service"


class Span(NamedTuple):
    name: str
    began: float
    ended: float


class Trace(NamedTuple):
    """`orders`: stamps by order id; `read`: when the worker had each; `spans` of the worker in order."""

    orders: Mapping[str, Mapping[str, float]]
    read: Mapping[str, float]
    spans: Sequence[Span]


class Busy:
    """Disjoint spans in order: how much of an interval they cover, in seconds."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._began, self._ended = [span.began for span in spans], [span.ended for span in spans]

    def covers(self, began: float, ended: float) -> float:
        first, last = bisect_right(self._ended, began), bisect_left(self._began, ended)
        return sum(
            min(ended, self._ended[index]) - max(began, self._began[index]) for index in range(first, last)
        )


class Timeline:
    """The worker's spans, by name."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._waits = Busy([span for span in trace.spans if span.name in ("take", "gather")])
        self._gathers = Busy([span for span in trace.spans if span.name == "gather"])
        self._commits = sorted(
            (span for span in trace.spans if span.name == "commit"), key=lambda span: span.ended
        )
        self._ends = [span.ended for span in self._commits]
        self._steps = {
            name: sorted(span.ended for span in trace.spans if span.name == name)
            for name in ("begin_transaction", "send_offsets_to_transaction", "commit_transaction")
        }

    def parts(self, order_id: str) -> dict[str, float]:
        """The parts of an order's time in the API and the worker, in seconds. They follow each other."""
        stamps, read = self._trace.orders[order_id], self._trace.read[order_id]
        acknowledged = min(stamps["acknowledged"], read)
        fetched = self._waits.covers(acknowledged, read)
        commit = self._commits[bisect_right(self._ends, read)]
        window = self._gathers.covers(read, commit.began)
        begun, offsets, committed = (ends[bisect_right(ends, commit.began)] for ends in self._steps.values())
        return {
            "API: request → command": stamps["sent"] - stamps["request"],
            "produce → broker": acknowledged - stamps["sent"],
            "broker → worker": fetched,
            "behind the running batch": read - acknowledged - fetched,
            "window": window,
            "decide, encode": begun - read - window,
            "transaction: records, offsets": offsets - begun,
            "transaction: commit": committed - offsets,
            "outcome → API": stamps["outcome"] - committed,
            "API: outcome → response": stamps["response"] - stamps["outcome"],
        }


def where_time_goes(trace: Trace, began: float, ended: float, p50: float) -> dict[str, float]:
    """Milliseconds by part for the orders that were in the middle of what was requested between two times.

    `p50` is what the client measured; what its parts do not explain is the client's own and the socket's. Empty where
    no order is complete: the machine was too busy for so short a window.
    """
    timeline = Timeline(trace)
    complete = sorted(
        (stamps["response"] - stamps["request"], order_id)
        for order_id, stamps in trace.orders.items()
        if began <= stamps["request"] < ended and len(stamps) == 5 and order_id in trace.read
    )
    if not complete:
        return {}
    middle = complete[int(MIDDLE[0] * len(complete)) : int(MIDDLE[1] * len(complete)) + 1]
    every = [timeline.parts(order_id) for _, order_id in middle]
    parts = {name: 1000 * fmean(parts[name] for parts in every) for name in every[0]}
    return parts | {"client, HTTP": p50 - sum(parts.values()), "p50": p50}


def measure(
    rig: Rig, connections: Sequence[int], seconds: float, settings: Mapping[str, object]
) -> list[dict[str, float]]:
    """The parts at each number of connections, of a traced API and worker that replace the rig's."""
    files = {part: rig.folder / f"trace-{part}.json" for part in ("api", "worker")}
    rig.await_ready(rig.start("order-worker", TRACED, SERVICE, "worker", str(files["worker"]), **settings))
    api = rig.start("order-api", TRACED, SERVICE, "api", str(files["api"]), **settings)
    rig.await_ready(api)
    # A restored worker's first batches wait for much that later ones find done.
    send(Load(api.port, "small_order", "untimed", max(connections), seconds))
    windows = {}
    for count in connections:
        load = Load(api.port, "small_order", f"traced-{count}", count, seconds)
        windows[count] = send(load)
    for name in ("order-api", "order-worker"):
        rig.parts[name].stop()
    trace = read_trace(files["api"], files["worker"])
    return [
        where_time_goes(trace, *_interval(trace, f"traced-{count}"), loaded.p50)
        for count, loaded in windows.items()
    ]


def _interval(trace: Trace, prefix: str) -> tuple[float, float]:
    """When the load under this prefix ran, without its first half second."""
    times = [
        stamps["request"] for order_id, stamps in trace.orders.items() if order_id.startswith(f"{prefix}-")
    ]
    return min(times) + 0.5, max(times)


def read_trace(api: Path, worker: Path) -> Trace:
    orders, loop = json.loads(api.read_text())["orders"], json.loads(worker.read_text())
    return Trace(orders, loop["read"], [Span(*span) for span in loop["spans"]])
