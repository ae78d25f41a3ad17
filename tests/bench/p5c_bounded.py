"""P5C: a large log copied into a lake, all its marts made and all of it audited, in 2 GB: time and memory.

Each is a process as users start it; what it, Spark's JVM and all their children hold is added up. The read models come
from the generator of the log and not from the projection, which would take hours.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from analytics.envelope import EVENT_TOPICS
from analytics.offsets import stable_ends
from infra.base.settings import ROOT
from infra.stack.embedded.java import spark_environment
from services.projection.read_models import READ_MODELS
from tests.bench import bulk
from tests.bench.harness import Effort, Measured, Say, Unmeasurable, Window
from tests.bench.p5_replay import PER_TRANSACTION
from tests.bench.p5b_marts import EVENTS_PER_ORDER, ORDERS, QUICK_ORDERS, TreeMemory
from tests.bench.rig import Rig
from tests.postgres_server import create_tables_of_shop

MEGABYTES = 2_048
JOBS = {
    "the lake's update": ("lake.py", "update"),
    "13 marts": ("marts.py", "--from", "lake", "--out", "marts"),
    "the audit": ("audit.py", "--wait", "0", "--out", "audit"),
}


def run(effort: Effort, say: Say) -> list[Measured]:
    """The three jobs, one after the other, once each."""
    orders = QUICK_ORDERS if effort.quick else ORDERS
    events = orders * EVENTS_PER_ORDER
    with Rig() as rig:
        write_log(rig.kafka, orders)
        write_read_models(rig.kafka, rig.database_url, orders)
        say(f"{events:,} events in the log, and the read models")
        windows = {}
        for name, (job, *arguments) in JOBS.items():
            window = timed_job(
                rig.folder, job, arguments, environment(rig.kafka, rig.database_url, rig.folder)
            )
            windows[name] = Window(events / window.figure, window.seen)
            say(f"{name}: {window.figure:.0f} s, at most {window.seen['MiB']:,.0f} MiB")
    rows = [
        Measured(f"{name} of {events:,} events", "events/s", {name: [row]}) for name, row in windows.items()
    ]
    for row, window in zip(rows, windows.values(), strict=True):
        row.reach(f"≤{MEGABYTES:,} MiB", window.seen["MiB"], MEGABYTES, at_least=False)
    return rows


def write_log(kafka: str, orders: int) -> None:
    """Whole lives of so many orders; one process writes the orders, another the stock."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write, args=(kafka, orders)) for write in (_write_orders, _write_stock)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        if writer.exitcode:
            raise Unmeasurable(f"a writer of the log ended with {writer.exitcode}")


def _write_orders(kafka: str, orders: int) -> None:
    bulk.put_events(kafka, bulk.interleaved(bulk.lives(orders)), PER_TRANSACTION, "orders")


def _write_stock(kafka: str, orders: int) -> None:
    moved = (event for (event,) in bulk.stocks(orders, 0, Counter()))
    bulk.put_events(kafka, moved, PER_TRANSACTION, "stock")


def write_read_models(kafka: str, database_url: str, orders: int) -> None:
    """What the projection would have made of the log, as far as the audit reads it, and its positions."""
    create_tables_of_shop(database_url)
    asyncio.run(_copy(kafka, database_url, orders))


async def _copy(kafka: str, database_url: str, orders: int) -> None:
    totals: Counter[tuple[str, str]] = Counter()
    connection = await asyncpg.connect(database_url)
    try:
        rows = _orders(orders, totals)
        await _copy_rows(connection, "orders", rows)
        await _copy_rows(connection, "stock", _stock(totals))
        await _copy_rows(connection, "sales_daily", _sales(totals))
        ends = stable_ends(kafka, EVENT_TOPICS)
        for name, topic in ((model.name, topic) for model in READ_MODELS for topic in model.topics):
            await connection.executemany(
                "INSERT INTO position (read_model, topic, partition, next_offset) VALUES ($1, $2, $3, $4)"
                " ON CONFLICT (read_model, topic, partition) DO UPDATE SET next_offset = excluded.next_offset",
                [(name, topic, partition, end) for partition, end in ends[topic].items()],
            )
    finally:
        await connection.close()


async def _copy_rows(connection: asyncpg.Connection, table: str, rows: Iterator[Mapping[str, Any]]) -> None:
    first = next(rows)
    columns = list(first)
    records = (tuple(row.values()) for some in ((first,), rows) for row in some)
    await connection.copy_records_to_table(table, schema_name=table, columns=columns, records=records)


def _orders(orders: int, totals: Counter[tuple[str, str]]) -> Iterator[Mapping[str, Any]]:
    """The rows of the orders; `totals` counts what the other two read models need."""
    beginning = datetime.fromtimestamp(bulk.AT // 1_000_000, UTC)
    for number in range(orders):
        lines, at = bulk.lines(number, 2), beginning + timedelta(seconds=number)
        units, gross = sum([line.quantity for line in lines]), bulk.gross_of(lines)
        for line in lines:
            totals["units", line.sku] += line.quantity
            totals["events", line.sku] += 2
        day = at.date().isoformat()
        totals["orders", day] += 1
        totals["sold", day] += units
        totals["gross", day] += gross
        yield {
            "order_id": f"o-{number}", "version": 4, "event_id": "", "lineage": "[[1, 1]]", "changed_at": at,
            "status": "shipped", "customer_id": f"c-{number % 1000}", "country": bulk.SHOP["country"],
            "currency": bulk.SHOP["currency"], "placed_at": at, "units": units, "gross": gross, "refunded": 0,
            "returned": "{}", "short": [],
        }  # fmt: skip


def _stock(totals: Counter[tuple[str, str]]) -> Iterator[Mapping[str, Any]]:
    now = datetime.now(UTC)
    for sku in [key for of, key in totals if of == "units"]:
        yield {
            "sku": sku, "version": totals["events", sku], "event_id": "", "lineage": "[[1, 1]]", "changed_at": now,
            "received": 0, "adjusted": 0, "returned": 0, "issued": totals["units", sku], "reserved": 0,
        }  # fmt: skip


def _sales(totals: Counter[tuple[str, str]]) -> Iterator[Mapping[str, Any]]:
    for day in [key for of, key in totals if of == "orders"]:
        yield {
            "day": datetime.fromisoformat(day).date(), **bulk.SHOP, "orders": totals["orders", day],
            "units": totals["sold", day], "gross": totals["gross", day], "returned": 0,
        }  # fmt: skip


def environment(kafka: str, database_url: str, folder: Path) -> dict[str, str]:
    """The variables of a job that must be content with 2 GB."""
    return {
        **os.environ,
        **spark_environment(),
        "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -Xshare:off",  # without the archive of classes
        "DAYBOOK_SPARK_MEMORY": "640m",
        "PYTHONPATH": str(ROOT),
        "DAYBOOK_KAFKA": kafka,
        "DAYBOOK_DATABASE_URL": database_url,
        "DAYBOOK_LAKE": str(folder / "lake"),
        "DAYBOOK_SPARK_SCRATCH": str(folder / "spark"),
    }


def timed_job(folder: Path, job: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Window:
    """Its seconds, and in `MiB` what it held at most. Raises Unmeasurable with the end of its output if it fails."""
    output, began = folder / f"{job}.txt", time.perf_counter()
    with output.open("w") as out:
        process = subprocess.Popen(
            (sys.executable, ROOT / "analytics" / "jobs" / job, *arguments),
            cwd=folder, env=variables, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with TreeMemory(process.pid) as memory:
            code = process.wait()
    if code:
        raise Unmeasurable(f"{job} ended with {code}: {output.read_text()[-800:]}")
    parts = {f"MiB {name}": round(held) for name, held in memory.parts.items()}
    return Window(time.perf_counter() - began, {"MiB": memory.most, **parts})
