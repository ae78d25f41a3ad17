"""P9: a worker's restart, from its start to the first accepted command.

With 1,000,000 events behind it (250,000 settled orders), with snapshots and without; with a small state; and
from a kill -9 in the middle of work to the first acknowledgement of its successor.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from infra.base.waiting import wait_until
from tests.bench import bulk
from tests.bench.harness import Effort, Measured, Say, Unmeasurable, Window
from tests.bench.order_sender import OrderSender
from tests.bench.p3_live_projection import last_records
from tests.bench.rig import Part, Rig
from tests.scraped import metric

EVENTS = 1_000_000
SMALL = 2_000
WITH, WITHOUT = "daybook (snapshots)", "replay without snapshots"
SETTLED_BYTES = 1024
SNAPSHOT_PATIENCE = 300.0
SHRINK_SECONDS = 10.0  # until the C library gives back what is free


def run(effort: Effort, say: Say) -> list[Measured]:
    events = EVENTS // 10 if effort.quick else EVENTS
    rows = [_large(events, say)]
    with Rig(postgres=False) as rig:
        bulk.put_events(rig.kafka, bulk.interleaved(bulk.lives(SMALL // 4)), 500)
        with OrderSender(rig.kafka) as sender:
            timed_start(rig, sender)[0].stop()  # writes the first snapshots
            restarts, kills = [], []
            for number in range(effort.windows):
                part, window = timed_start(rig, sender)
                restarts.append(window)
                say(f"restart {number + 1}: {window.figure:.2f} s")
                kills.append(killed_in_work(rig, sender, part))
                say(f"kill -9 {number + 1}: {kills[-1].figure:.2f} s")
    small = Measured(f"restart, {SMALL:,} events", "s", {"daybook": restarts}, lower_is_better=True)
    small.reach("≤3 s", small.spread().median, 3.0, at_least=False)
    killed = Measured("kill -9 to first acknowledgement", "s", {"daybook": kills}, lower_is_better=True)
    killed.reach("≤3 s", killed.spread().median, 3.0, at_least=False)
    return [*rows, small, killed]


def _large(events: int, say: Say) -> Measured:
    """Once each: replay of everything, then from the snapshots that its owner has written meanwhile."""
    with Rig(postgres=False) as rig:
        say(f"writing {events:,} events")
        bulk.put_events(rig.kafka, bulk.interleaved(bulk.lives(events // 4)), 2000)
        with OrderSender(rig.kafka) as sender:
            empty = _megabytes_of_empty(rig)
            part, replayed = timed_start(rig, sender)
            say(f"without snapshots: {replayed.figure:.2f} s")
            _snapshots_written(rig, part, events // 4, say)
            _rested(part, events // 4)
            at_rest = megabytes(part)
            part.stop()
            part, restored = timed_start(rig, sender)
            say(f"with snapshots: {restored.figure:.2f} s")
            part.kill()
    touched, held = ((now - empty) * 2**20 / (events // 4) for now in (replayed.seen["MiB"], at_rest))
    seconds = {WITH: [restored], WITHOUT: [replayed]}
    row = Measured(f"restart, {events:,} events", "s", seconds, lower_is_better=True)
    row.reach("≤15 s", restored.figure, 15.0, at_least=False)
    row.reach("≤1 KiB kept per settled order", held, SETTLED_BYTES, at_least=False)
    row.notes.append(
        f"{held:,.0f} B of memory per settled order at rest, answers and all else included: "
        f"{2**30 / held / 1e6:.2f} million orders per GiB and slot; {touched:,.0f} B before it rests"
    )
    return row


def timed_start(rig: Rig, sender: OrderSender) -> tuple[Part, Window]:
    """Start a worker while a command waits; return the seconds from its start to the command's outcome."""
    command = sender.send_order()
    began = time.perf_counter()
    part = rig.shop("order-worker", redrive_seconds=36_000)
    seconds = sender.accepted_at(command) - began
    return part, Window(seconds, {"MiB": megabytes(part)})


def killed_in_work(rig: Rig, sender: OrderSender, part: Part) -> Window:
    """Kill the worker during a stream of commands; return the seconds until its successor acknowledges the next."""
    for _ in range(200):
        sender.send_order()
    time.sleep(0.05)
    began = time.perf_counter()
    part.kill()
    successor, _ = timed_start(rig, sender)
    seconds = time.perf_counter() - began
    successor.stop()
    return Window(seconds)


def _megabytes_of_empty(rig: Rig) -> float:
    """The memory of a worker without entities: inventory's, which has no events here."""
    part = rig.shop("inventory-worker")
    rig.await_ready(part)
    size = megabytes(part)
    part.stop()
    return size


def megabytes(part: Part) -> float:
    return float(psutil.Process(part.pid).memory_info().rss / 2**20)


def _snapshots_written(rig: Rig, part: Part, entities: int, say: Say) -> None:
    """Wait until the owner has written a snapshot of every order, as it does by itself in the background."""
    written = _reached(
        part, entities, "snapshots", lambda: sum(last_records(rig.kafka, "order.state").values())
    )
    say(f"{written:,.0f} snapshots written")


def _rested(part: Part, entities: int) -> None:
    """Wait until the owner has evicted every order: the second snapshot run after the order was settled."""
    _reached(part, entities, "orders at rest", lambda: metric(part.port, "daybook_entities_rested_total"))
    time.sleep(SHRINK_SECONDS)


def _reached(part: Part, entities: int, what: str, count: Callable[[], float]) -> float:
    """Wait until `count` returns `entities`, and return it. Raises Unmeasurable when the owner ends or is too slow."""

    def reached(reached_count: float) -> bool:
        if reached_count < entities and part.child.exit_code is not None:
            raise Unmeasurable(f"{reached_count:,.0f} of {entities:,} {what}: {part.child.last_lines()}")
        return reached_count >= entities

    return wait_until(
        count,
        lambda: f"{entities:,} {what}: {part.child.last_lines()}",
        SNAPSHOT_PATIENCE,
        enough=reached,
        every=1.0,
        error=Unmeasurable,
    )
