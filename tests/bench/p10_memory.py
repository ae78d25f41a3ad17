"""P10: memory of each process under steady work on a fixed population: 20,000 orders, 5,000 SKUs.

The retry window is two minutes here, so that recorded outcomes reach their steady size within the warm-up;
with the default of a day it grows for a day, by the size per order that P9 measures.
"""

from __future__ import annotations

import threading
import time

import psutil

from tests.bench.generator import Load, send
from tests.bench.harness import Effort, Measured, Say, Unmeasurable, Window
from tests.bench.p1_http_commands import measure as measure_p1
from tests.bench.rig import Rig
from tests.bench.statistics import slope
from tests.bench.whole import await_rest, start_shop

MINUTES, WARM_MINUTES = 15.0, 5.0
QUICK_MINUTES, QUICK_WARM = 2.0, 0.75
RETRY_WINDOW_HOURS = 2 / 60
SAMPLE_SECONDS = 2.0
CONNECTIONS = 32
POPULATION = 20_000  # as the generator's fixed orders
MEBIBYTES_PER_10_MINUTES = 1.0


def run(effort: Effort, say: Say) -> list[Measured]:
    minutes, warm = (QUICK_MINUTES, QUICK_WARM) if effort.quick else (MINUTES, WARM_MINUTES)
    with Rig() as rig:
        start_shop(rig, retry_window_hours=RETRY_WINDOW_HOURS)
        # Python takes memory by the megabyte, so what the busiest minute needs must be there before.
        for api, kind in (("order-api", "first_order"), ("inventory-api", "adjustment")):
            first = Load(rig.parts[api].port, kind, "first", 64, 300.0, warm=0.0, most=POPULATION)
            if refused := send(first).refused:
                raise Unmeasurable(f"{refused} of the first {kind} were refused")
        await_rest(rig, 600)
        peak = measure_p1(rig, rig.parts["order-api"], 64, effort.seconds).figure
        await_rest(rig)
        rate = peak / 2
        say(f"{rate:,.0f} commands/s, half of {peak:,.0f}, for {minutes} minutes")
        sizes = _under_load(rig, rate, minutes * 60)
    rows = []
    for name, points in sizes.items():
        settled = [(at / 600, size) for at, size in points if at >= warm * 60]
        row = Measured(
            name, "MiB per 10 min", {"daybook": [Window(slope(settled), {"MiB": settled[-1][1]})]},
            lower_is_better=True,
        )  # fmt: skip
        if name not in ("broker", "postgres"):
            row.reach("≤1 MiB per 10 min", row.spread().median, MEBIBYTES_PER_10_MINUTES, at_least=False)
        rows.append(row)
    return rows


def _under_load(rig: Rig, rate: float, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """(seconds, MiB) of each process while half of the commands go to orders and half to stock."""
    failures: list[BaseException] = []

    def drive(api: str, kind: str) -> None:
        try:
            sent = send(Load(rig.parts[api].port, kind, "steady", CONNECTIONS, seconds, rate=rate / 2))
            if sent.refused:
                raise Unmeasurable(f"{sent.refused} of {kind} were refused")
        except BaseException as error:
            failures.append(error)

    drivers = [
        threading.Thread(target=drive, args=load, daemon=True)
        for load in (("order-api", "fixed_order"), ("inventory-api", "adjustment"))
    ]
    for driver in drivers:
        driver.start()
    sizes: dict[str, list[tuple[float, float]]] = {}
    began = time.monotonic()
    pids = {name: part.pid for name, part in rig.parts.items()} | {"broker": rig.broker.child.pid}
    while any(driver.is_alive() for driver in drivers):
        for name, pid in pids.items():
            size = psutil.Process(pid).memory_info().rss / 2**20
            sizes.setdefault(name, []).append((time.monotonic() - began, size))
        time.sleep(SAMPLE_SECONDS)
    if failures:
        raise failures[0]
    return sizes
