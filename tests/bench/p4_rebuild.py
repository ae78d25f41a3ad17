"""P4: the orders rebuilt from the first event, beside the live ones; all ways must end in the same bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from services.projection.engine.rebuild import replay_into
from services.projection.read_models import ORDERS
from tests.bench import bulk
from tests.bench.databases import digest, drain_seconds, fresh_database
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.bench.p3_live_projection import last_records
from tests.bench.peers import rebuilding
from tests.bench.rig import Rig

OURS, LIVE, ROW, MANY = "daybook", "the live projection", "row at a time", "executemany"
APPLY = {ROW: rebuilding.row_at_a_time, MANY: rebuilding.executemany}
# A window of the slowest must stay short: it rebuilds the log's beginning only.
BEGINNING, REST, QUICK_REST = 12_000, 188_000, 48_000
Ends = Mapping[tuple[str, int], int]


def run(effort: Effort, say: Say) -> list[Measured]:
    """The peers rebuild the same log in a database of their own."""
    with Rig() as rig:
        count = BEGINNING + (QUICK_REST if effort.quick else REST)
        beginning, ends = _write(rig, 0, BEGINNING), _write(rig, BEGINNING, count)
        say(f"{count:,} events in the log; projecting them live")
        live, beside = fresh_database(rig.database_url), fresh_database(rig.database_url)
        _project(rig, live, ends)
        expected, of_beginning = digest(live, ORDERS), _digest_of(rig, beside, beginning)
        contenders = (
            Contender(OURS, lambda: _ours(rig, live, count, expected)),
            Contender(LIVE, lambda: _live(rig, count, ends, expected)),
            Contender(ROW, lambda: _peer(rig, beside, ROW, BEGINNING, beginning, of_beginning)),
            Contender(MANY, lambda: _peer(rig, beside, MANY, count, ends, expected)),
        )
        windows = interleave(contenders, effort.windows, say, warm=False)
    row = Measured(f"orders, {count:,} events", "events/s", windows, name="orders")
    row.reach("≥25,000/s", row.spread().median, 25_000)
    row.reach("faster than the live projection", row.ratio(LIVE).median, 1.0)
    row.reach("≥3× row at a time", row.ratio(ROW).median, 3.0)
    row.notes.append(f"{LIVE}: the same process as in the shop, from its first commit to its last")
    row.notes.append(f"tables byte-equal in each window; row at a time: of the first {BEGINNING:,} events")
    return [row]


def _write(rig: Rig, first: int, last: int) -> Ends:
    """Orders' events from the `first` to the `last`; the positions after them."""
    streams = bulk.lives((last - first) // 4, first // 4)
    bulk.put_events(rig.kafka, bulk.interleaved(streams), 100)
    return last_records(rig.kafka, "order.events")


def _digest_of(rig: Rig, database: str, ends: Ends) -> Mapping[str, str]:
    """The expected digest of a rebuild up to `ends`, from the other peer."""
    asyncio.run(rebuilding.rebuild(rig.kafka, database, ends, rebuilding.executemany))
    return digest(database, ORDERS)


def _project(rig: Rig, database: str, ends: Ends) -> tuple[float, float]:
    """Seconds and share of the log from the first commit to the last."""
    name = f"live-{database.rpartition('/')[2]}"
    part = rig.start(
        name,
        "tests.bench.subjects.projection",
        *("faust", ORDERS.name),
        database_url=database,
        projection_group=name,
    )
    try:
        return drain_seconds(database, ends, 1)
    finally:
        part.stop()
        del rig.parts[name]


def _live(rig: Rig, count: int, ends: Ends, expected: Mapping[str, str]) -> Window:
    database = fresh_database(rig.database_url)
    seconds, share = _project(rig, database, ends)
    _check(LIVE, count, count, digest(database, ORDERS), expected)
    return Window(count * share / seconds)


def _ours(rig: Rig, database: str, count: int, expected: Mapping[str, str]) -> Window:
    began = time.perf_counter()
    done = asyncio.run(replay_into(rig.kafka, database, [ORDERS]))[ORDERS.name]
    passed = time.perf_counter() - began
    _check(OURS, done.events, count, digest(database, ORDERS), expected)
    return Window(count / passed, {"held ms": done.switch_seconds * 1000})


def _peer(
    rig: Rig,
    database: str,
    name: str,
    count: int,
    ends: Ends,
    expected: Mapping[str, str],
) -> Window:
    asyncio.run(rebuilding.empty(database))
    began = time.perf_counter()
    done = asyncio.run(rebuilding.rebuild(rig.kafka, database, ends, APPLY[name]))
    passed = time.perf_counter() - began
    _check(name, done, count, digest(database, ORDERS), expected)
    return Window(count / passed)


def _check(name: str, done: int, count: int, tables: Mapping[str, str], expected: Mapping[str, str]) -> None:
    if done != count or tables != expected:
        raise Unmeasurable(f"{name} is wrong: {done} of {count} events; tables {tables}, live {expected}")
