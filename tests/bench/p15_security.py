"""P15: what security costs: a shop as by default beside one after `up --insecure`, in turns.

Both have a broker, a PostgreSQL and processes of their own, and the idle one waits. The default has TLS, users and
rights in Kafka, and verified tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from analytics.replay import replay
from contracts.order.events import OrderConfirmed
from tests.bench import bulk
from tests.bench.generator import Load, send
from tests.bench.harness import Contender, Effort, Measured, Say, Window, interleave
from tests.bench.order_sender import OrderSender
from tests.bench.p1_http_commands import PATIENT, WARM_SECONDS
from tests.bench.p1_http_commands import measure as commands
from tests.bench.p3_live_projection import ORDER_MODELS, last_records
from tests.bench.p3_live_projection import measure as projected
from tests.bench.p5_replay import TOPIC, spark_of, timed, totals_of, write_confirmations
from tests.bench.p9_restart import killed_in_work, megabytes, timed_start
from tests.bench.rig import Rig

SECURED, INSECURE = "secured", "insecure"
KINDS = {SECURED: True, INSECURE: False}
CONNECTIONS = (16, 64)
PER_TRANSACTION = 10
CONFIRMATIONS = 200_000
SLOWER = 0.85  # of the insecure shop, at least
KILL_SECONDS = 2.5


def run(effort: Effort, say: Say) -> list[Measured]:
    return [*_commands(effort, say), _projection(effort, say), _replay(effort, say), *_restarts(effort, say)]


def _rows(
    rigs: Mapping[str, Rig], measure: Callable[[str], Window], effort: Effort, say: Say
) -> dict[str, list[Window]]:
    contenders = [Contender(kind, lambda kind=kind: measure(kind)) for kind in rigs]  # type: ignore[misc]
    return interleave(contenders, effort.windows, say)


def _both(stack: ExitStack, say: Say, *, postgres: bool) -> tuple[Mapping[str, Rig], Mapping[str, float]]:
    """A rig of each kind, and the seconds that its stores took to start."""
    rigs, seconds = {}, {}
    for kind, secured in KINDS.items():
        began = time.perf_counter()
        rigs[kind] = stack.enter_context(Rig(postgres=postgres, secured=secured))
        seconds[kind] = time.perf_counter() - began
        say(f"{kind}: stores, topics and users after {seconds[kind]:.1f} s")
    return rigs, seconds


def _commands(effort: Effort, say: Say) -> list[Measured]:
    with ExitStack() as stack:
        rigs, seconds = _both(stack, say, postgres=True)
        for rig in rigs.values():
            rig.await_ready(rig.shop("order-worker", **PATIENT))
            rig.await_ready(rig.shop("order-api", **PATIENT))
            send(Load(rig.parts["order-api"].port, "small_order", "warm", 64, WARM_SECONDS))
        rows = []
        for connections in CONNECTIONS:
            windows = _rows(
                rigs,
                lambda kind, size=connections: commands(  # type: ignore[misc]
                    rigs[kind], rigs[kind].parts["order-api"], size, effort.seconds
                ),
                effort,
                say,
            )
            row = Measured(f"P1, c={connections}", "orders/s", windows, name=f"c={connections}")
            row.reach(f"≥{SLOWER} of insecure", row.ratio(INSECURE).median, SLOWER)
            rows.append(row)
        for kind, rig in rigs.items():
            sizes = {name: megabytes(part) for name, part in rig.parts.items()}
            text = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())
            rows[-1].notes.append(f"{kind}: {text} MiB; stores, topics and users after {seconds[kind]:.1f} s")
        return rows


def _projection(effort: Effort, say: Say) -> Measured:
    with ExitStack() as stack:
        rigs, _ = _both(stack, say, postgres=True)
        ends, count = {}, 0
        for kind, rig in rigs.items():
            events = bulk.interleaved(bulk.lives(int(2_500 * effort.seconds)))
            count = bulk.put_events(rig.kafka, events, PER_TRANSACTION)
            ends[kind] = last_records(rig.kafka, TOPIC)
        windows = _rows(
            rigs, lambda kind: projected(rigs[kind], "faust", ORDER_MODELS, count, ends[kind]), effort, say
        )
    return Measured(f"P3, {PER_TRANSACTION} per transaction", "events/s", windows, name="projection")


def _replay(effort: Effort, say: Say) -> Measured:
    with ExitStack() as stack:
        rigs, _ = _both(stack, say, postgres=False)
        session = stack.enter_context(spark_of(rigs[SECURED]))
        written = {kind: write_confirmations(rig, 0, CONFIRMATIONS) for kind, rig in rigs.items()}

        def replayed(kind: str) -> Window:
            ends, totals = written[kind]
            events = replay(session, rigs[kind].kafka, ends=ends).of(OrderConfirmed.TYPE)
            return timed(kind, lambda: totals_of(events), totals)

        windows = _rows(rigs, replayed, effort, say)
    return Measured(f"P5, {CONFIRMATIONS:,} events", "events/s", windows, name="replay")


def _restarts(effort: Effort, say: Say) -> list[Measured]:
    restarts: dict[str, list[Window]] = {kind: [] for kind in KINDS}
    kills: dict[str, list[Window]] = {kind: [] for kind in KINDS}
    with ExitStack() as stack:
        rigs, _ = _both(stack, say, postgres=False)
        senders = {kind: stack.enter_context(OrderSender(rig.kafka)) for kind, rig in rigs.items()}
        for kind, rig in rigs.items():
            timed_start(rig, senders[kind])[0].stop()
        for number in range(effort.windows):
            for kind, rig in rigs.items():
                part, window = timed_start(rig, senders[kind])
                restarts[kind].append(window)
                kills[kind].append(killed_in_work(rig, senders[kind], part))
                say(
                    f"{number + 1}, {kind}: started {window.figure:.2f} s, kill {kills[kind][-1].figure:.2f} s"
                )
    started = Measured("P9, a worker's start", "s", restarts, lower_is_better=True, name="start")
    killed = Measured("P9, kill -9 to first acknowledgement", "s", kills, lower_is_better=True, name="kill")
    killed.reach(f"≤{KILL_SECONDS} s", killed.spread().median, KILL_SECONDS, at_least=False)
    return [started, killed]
