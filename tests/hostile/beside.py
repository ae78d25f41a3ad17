"""Requests of other clients beside hostile connections, and beside one customer who sends all they can."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from infra.base.settings import ROOT
from infra.stack.tokens import caller_of, issuer_of
from tests.bench.generator import Load, Loaded, send
from tests.e2e.shop import Shop

RATE, CONNECTED, GREEDY_CONNECTIONS = 60.0, 8, 32
WINDOW_SECONDS = 5.0
GREEDY_SECONDS = WINDOW_SECONDS + 3
PATIENCE = 60.0


def others(shop: Shop, api: str, kind: str, name: str) -> Loaded:
    """A window of the other clients: a steady rate of requests from 127.0.0.1, on their own connections."""
    load = Load(shop.settings.port(api), kind, name, CONNECTED, WINDOW_SECONDS, warm=1.0, rate=RATE)
    return send(replace(load, authorization=caller_of(shop.settings).headers()["Authorization"]))


@contextmanager
def greedy(shop: Shop, api: str, kind: str, name: str) -> Iterator[Future[Loaded]]:
    """One customer sends ten times as much as the other clients, longer than their window lasts."""
    token = issuer_of(shop.settings).token("greedy", ["orders:place", "orders:read"], 1)
    load = Load(
        shop.settings.port(api), kind, name, GREEDY_CONNECTIONS, GREEDY_SECONDS, warm=0.0, rate=10 * RATE
    )
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(send, replace(load, authorization=f"Bearer {token}"))


@contextmanager
def crowd(port: int, counts: Counter[str]) -> Iterator[None]:
    """Opens all hostile connections. `counts` receives the number of their responses."""
    command = [sys.executable, "-m", "tests.hostile.crowd", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as hostile:
        assert hostile.stdout is not None
        assert hostile.stdout.readline() == "all there\n"
        yield
        output, _ = hostile.communicate(timeout=PATIENCE)
    counts.update(json.loads(output))
