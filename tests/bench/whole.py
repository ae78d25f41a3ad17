"""The whole shop in a rig, stocked, and how far behind any of it is."""

from __future__ import annotations

import time

from infra.base.http import local_http
from infra.base.waiting import wait_until
from tests.bench.generator import Load, send
from tests.bench.harness import Unmeasurable
from tests.bench.rig import Rig
from tests.scraped import metric

FIRST = ("order-worker", "inventory-worker", "projection")
SECOND = ("order-api", "inventory-api", "query-api")
WORKERS = ("order-worker", "inventory-worker")
SKUS = 5000
PATIENCE_SECONDS = 120.0


def start_shop(rig: Rig, *, stocked: bool = True, **settings: object) -> None:
    """All six processes, ready; with `stocked` every SKU that the generator names is there in plenty."""
    query = rig.shop("query-api", **settings)
    rig.await_ready(query)
    rig.await_ready(*(rig.shop(name, **settings) for name in FIRST))
    rig.await_ready(*(rig.shop(name, **settings) for name in SECOND if name != "query-api"))
    if stocked:
        _receive(rig)


def _receive(rig: Rig) -> None:
    """One receipt of every SKU."""
    everything = Load(
        rig.parts["inventory-api"].port, "receipt", "opening", 64, PATIENCE_SECONDS, warm=0.0, most=SKUS
    )
    if refused := send(everything).refused:
        raise Unmeasurable(f"{refused} receipts were refused")


def behind(rig: Rig) -> int:
    """Commands that wait for the workers, plus events that wait for the read model furthest behind.

    At least 1 while one of them is not known.
    """
    ports = [rig.parts[name].port for name in WORKERS]
    models = local_http().get(f"{rig.parts['query-api'].url}/projections").json()["projections"]
    lags = [[place["lag_events"] for place in model["partitions"]] for model in models]
    known = all(metric(port, "daybook_lag_known") for port in ports)
    if not known or any(lag is None for model in lags for lag in model):
        return 1
    return int(sum(metric(port, "daybook_lag_events") for port in ports)) + max(map(sum, lags), default=0)


def await_rest(rig: Rig, seconds: float = PATIENCE_SECONDS) -> float:
    """Wait until nothing is behind, twice in a row as it is measured every second; how long that took."""
    began, calm = time.monotonic(), 0
    time.sleep(1.1)

    def twice(left: float) -> bool:
        nonlocal calm
        calm = 0 if left else calm + 1
        return calm == 2

    wait_until(lambda: behind(rig), "nothing is behind", seconds, enough=twice, every=1.1, error=Unmeasurable)
    return time.monotonic() - began
