"""P1: durable commands a second over HTTP, 2xx only after the commit; inventory and projection stopped."""

from __future__ import annotations

import itertools
import math

from tests.bench import latency
from tests.bench.generator import Load, send
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.bench.rig import Cores, Part, Rig

CONNECTIONS = (16, 64, 128, 256)
TRACED = CONNECTIONS[:2]
OURS, OUTBOX, EVENT_STORE = "daybook", "asyncpg outbox", "pyeventsourcing"
# The limits of front ends: a back that waits 5 ms behind our route class, FastAPI's own, or no framework.
FRONTS = {"stub 5 ms": "ours", "stub, plain FastAPI": "fastapi", "stub, bare ASGI": "asgi"}
# Until its code is compiled the broker takes more than twice the processor time for a transaction:
# 17 ms in the first half minute, 8 in the second, 7 from then on.
WARM_SECONDS = 75.0
# Nobody answers reservations here: expiring and asking again would be other work than what is measured.
PATIENT = {"settle_seconds": 36_000, "redrive_seconds": 36_000}

_numbers = itertools.count()


def run(effort: Effort, say: Say) -> list[Measured]:
    with Rig() as rig:
        worker = rig.shop("order-worker", **PATIENT)
        rig.await_ready(worker)
        parts = {
            OURS: rig.shop("order-api", **PATIENT),
            OUTBOX: rig.start("outbox", "tests.bench.peers.outbox"),
            EVENT_STORE: rig.start("event-store", "tests.bench.peers.event_store"),
            **{
                name: rig.start(f"stub-{front}", "tests.bench.peers.stub", front)
                for name, front in FRONTS.items()
            },
        }
        rig.await_ready()
        send(Load(parts[OURS].port, "small_order", "warm", 64, WARM_SECONDS))
        rows = [_row(rig, parts, connections, effort, say) for connections in CONNECTIONS]
        if effort.traced:
            say("tracing")
            for name in ("order-api", "order-worker"):
                rig.parts[name].stop()
            for row, where in zip(rows, latency.measure(rig, TRACED, effort.seconds, PATIENT), strict=False):
                row.parts = where
                if not where:
                    row.notes.append(
                        "no traced order was complete: this run does not tell where its time goes"
                    )
        return rows


def _row(rig: Rig, parts: dict[str, Part], connections: int, effort: Effort, say: Say) -> Measured:
    def contender(name: str) -> Contender:
        return Contender(name, lambda: measure(rig, parts[name], connections, effort.seconds))

    names = [name for name in parts if name != EVENT_STORE or connections == 64]
    say(f"c={connections}")
    windows = interleave([contender(name) for name in names], effort.windows, say)
    row = Measured(f"c={connections}", "orders/s", windows)
    outbox = row.ratio(OUTBOX).median
    match connections:
        case 16:
            row.notes.append(f"{outbox:.2f}× the outbox (prototype 0.47×)")
        case 64:
            row.reach("≥2,500/s", row.spread().median, 2500)
            row.reach("p99 ≤100 ms", row.seen("p99").median, 100, at_least=False)
            row.reach("≥1.0× the outbox", outbox, 1.0)
            row.reach("≥6× pyeventsourcing", row.ratio(EVENT_STORE).median, 6.0)
        case 128:
            row.reach("≥1.5× the outbox", outbox, 1.5)
        case 256:
            row.reach("≥2× the outbox", outbox, 2.0)
    return row


def measure(rig: Rig, part: Part, connections: int, seconds: float) -> Window:
    """One window of a closed loop against one API. Raises Unmeasurable where requests were refused."""
    cores = Cores(rig)
    loaded = send(Load(part.port, "small_order", f"order-{next(_numbers)}", connections, seconds))
    if loaded.refused or math.isnan(loaded.p99):
        raise Unmeasurable(f"{loaded.refused} requests were refused: {part.child.last_lines()}")
    busy = {name: used for name, used in cores.taken().items() if used >= 0.02}
    seen = {"p50": round(loaded.p50, 1), "p99": round(loaded.p99, 1), "cpu generator": loaded.cores}
    return Window(loaded.rate, {**seen, **busy})
