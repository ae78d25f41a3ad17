"""P6: from a POST's acknowledgement to the row in the read model, under open-loop load of the whole stack.

The load is 50 and 90 % of the highest tried rate at which nothing falls behind. The peer is an outbox with a
relay that polls every 100 ms, writing to the same log, read by the same projection.
"""

from __future__ import annotations

import itertools

from tests.bench.generator import Load, Loaded, send
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.bench.rig import Rig
from tests.bench.sightings import Sightings
from tests.bench.statistics import quantile
from tests.bench.whole import await_rest, behind, start_shop

OURS, OUTBOX = "daybook", "outbox, relay every 100 ms"
CONNECTIONS = 128
RATES = (50, 100, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1300)
TRIAL_SECONDS = 8.0
# An order makes about ten commands and events: two per second and order are a fifth of a second of work.
FLAT_RECORDS = 2.0
SHARES = ((0.5, 200.0), (0.9, 500.0))

_numbers = itertools.count()


def run(effort: Effort, say: Say) -> list[Measured]:
    with Rig() as rig:
        start_shop(rig)
        rig.start("outbox", "tests.bench.peers.outbox")
        rig.start("relay", "tests.bench.peers.relay")
        rig.await_ready(rig.parts["outbox"])
        send(Load(rig.parts["order-api"].port, "small_order", "warm", 16, 3.0, rate=100))
        await_rest(rig)
        flat = flat_rate(rig, say)
        return [_row(rig, flat, share, p99, effort, say) for share, p99 in SHARES]


def flat_rate(rig: Rig, say: Say) -> int:
    """The highest of RATES that the whole stack takes for some seconds without falling behind."""
    highest = 0
    for rate in RATES:
        loaded = _offer(rig, OURS, rate, TRIAL_SECONDS)
        left = behind(rig)
        say(f"{rate}/s offered: {loaded.rate:,.0f}/s taken, {left} behind, p99 {loaded.p99:.0f} ms")
        await_rest(rig)
        if loaded.rate < 0.95 * rate or left > FLAT_RECORDS * rate:
            break
        highest = rate
    if not highest:
        raise Unmeasurable(f"the stack falls behind at {RATES[0]}/s already")
    return highest


def _row(rig: Rig, flat: int, share: float, p99: float, effort: Effort, say: Say) -> Measured:
    rate = share * flat

    def contender(name: str) -> Contender:
        return Contender(name, lambda: measure(rig, name, rate, effort.seconds))

    windows = interleave([contender(OURS), contender(OUTBOX)], effort.windows, say, warm=False)
    name = f"p99 at {share:.0%}"
    row = Measured(f"{name}: {rate:,.0f}/s", "ms", windows, lower_is_better=True, name=name)
    row.reach("p50 ≤40 ms", row.seen("p50").median, 40, at_least=False)
    row.reach(f"p99 ≤{p99:.0f} ms", row.spread().median, p99, at_least=False)
    row.reach("p99 ≤0.5× the outbox", row.ratio(OUTBOX).median, 0.5, at_least=False)
    row.notes.append(f"nothing fell behind at {flat}/s; the peer reserves no stock")
    return row


def measure(rig: Rig, name: str, rate: float, seconds: float) -> Window:
    """One window; the figure is the p99 in ms. Raises Unmeasurable where rows are missing."""
    prefix = f"seen-{next(_numbers)}-"
    with Sightings(rig.database_url, prefix) as sightings:
        loaded = _offer(rig, name, rate, seconds, prefix.rstrip("-"))
        missing = sightings.await_all(loaded.acknowledged)
    if missing or not loaded.acknowledged:
        raise Unmeasurable(f"{len(missing)} of {len(loaded.acknowledged)} rows of {name} did not appear")
    times = [
        max(0.0, sightings.seen[order] - responded) * 1000 for order, responded in loaded.acknowledged.items()
    ]
    await_rest(rig)
    p50, p99 = quantile(times, 0.50), quantile(times, 0.99)
    return Window(p99, {"p50": round(p50, 1), "POST p50": loaded.p50, "POST p99": loaded.p99})


def _offer(rig: Rig, name: str, rate: float, seconds: float, prefix: str = "") -> Loaded:
    port = rig.parts["order-api" if name == OURS else "outbox"].port
    prefix = prefix or f"trial-{next(_numbers)}"
    return send(Load(port, "small_order", prefix, CONNECTIONS, seconds, rate=rate, keep=True))
