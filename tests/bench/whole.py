"""The whole shop in a rig, with stock, and how far any part is behind."""

from __future__ import annotations

import time

from infra.base.http import local_http
from infra.base.waiting import wait_until
from infra.identity.caller import Caller
from tests.bench.generator import Load, send
from tests.bench.harness import Unmeasurable
from tests.bench.rig import Rig
from tests.scraped import metric

FIRST = ("order-worker", "inventory-worker", "projection")
SECOND = ("order-api", "inventory-api", "query-api")
SKUS = 5000
PATIENCE_SECONDS = 120.0


def start_shop(rig: Rig, *, stocked: bool = True, **settings: object) -> None:
    """All six processes, ready; with `stocked`, plenty of every SKU that the generator uses."""
    query = rig.shop("query-api", **settings)
    rig.await_ready(query)
    rig.await_ready(*(rig.shop(name, **settings) for name in FIRST))
    rig.await_ready(*(rig.shop(name, **settings) for name in SECOND if name != "query-api"))
    if stocked:
        _receive(rig)


def _receive(rig: Rig) -> None:
    """Receive stock of every SKU."""
    everything = Load(
        rig.parts["inventory-api"].port, "receipt", "opening", 64, PATIENCE_SECONDS, warm=0.0, most=SKUS
    )
    if refused := send(everything).refused:
        raise Unmeasurable(f"{refused} receipts were refused")


def behind(rig: Rig) -> int:
    """Commands that wait for the workers, plus events that wait for the read model furthest behind, if there is one.

    At least 1 while any of them is unknown.
    """
    ports = [part.port for name, part in rig.parts.items() if "-worker" in name]
    models = []
    if query := rig.parts.get("query-api"):
        models = (
            local_http().get(f"{query.url}/projections", headers=Caller().headers()).json()["projections"]
        )
    lags = [[partition["lag_events"] for partition in model["partitions"]] for model in models]
    lag_known = all(metric(port, "daybook_lag_known") for port in ports)
    if not lag_known or any(lag is None for model in lags for lag in model):
        return 1
    return int(sum(metric(port, "daybook_lag_events") for port in ports)) + max(map(sum, lags), default=0)


def await_rest(rig: Rig, seconds: float = PATIENCE_SECONDS) -> float:
    """Wait until nothing is behind in two measurements in a row, one second apart; return the seconds it took."""
    began, calm = time.monotonic(), 0
    time.sleep(1.1)

    def twice(left: float) -> bool:
        nonlocal calm
        calm = 0 if left else calm + 1
        return calm == 2

    wait_until(lambda: behind(rig), "nothing is behind", seconds, enough=twice, every=1.1, error=Unmeasurable)
    return time.monotonic() - began
