"""P5: the whole log replayed by Spark and summed by country, beside other ways to do it; then the lake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from analytics.lake.reader import open_lake
from analytics.lake.writer import update
from analytics.offsets import Offsets, stable_ends
from analytics.replay import SOURCE, Replay, replay
from analytics.session import open_session
from analytics.settings import AnalyticsSettings
from contracts.lock import load_lock
from contracts.order.events import OrderConfirmed
from infra.stack.embedded.java import jars_folder, spark_environment
from services.kernel.log.clients import Connection
from services.kernel.record.envelope import Envelope
from tests.bench import bulk
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.bench.peers import replay_peers
from tests.bench.peers.replay_peers import Totals
from tests.bench.rig import Rig

TOPIC = "order.events"
# The slow ones read the beginning only: a window must stay short.
BEGINNING, REST, QUICK_BEGINNING, QUICK_REST = 400_000, 1_600_000, 50_000, 150_000
PER_TRANSACTION = 2_000
COUNTRIES = ("United Kingdom", "Germany", "France", "EIRE", "Norway", "Netherlands")
OURS, BARE, LAKE = "daybook", "without headers", "from the lake"
FOLD, DUCKDB = "Python fold", "DuckDB fed by fastavro"
DUCKDB_LAKE = "DuckDB on the lake's tables"
# What Python does in them: all that ours does; or decoding alone, and Spark looks up the headers.
UDF, VALUE_UDF = "pickled UDF, value and headers", "pickled UDF, value alone"
ARROW_UDF = "UDF through Arrow, value alone"
LAKE_WINDOWS = 3


def run(effort: Effort, say: Say) -> list[Measured]:
    """Every contender must return the same totals of the same events in every window."""
    first, rest = (QUICK_BEGINNING, QUICK_REST) if effort.quick else (BEGINNING, REST)
    with Rig(postgres=False) as rig, spark_of(rig) as session:
        beginning, part = write_confirmations(rig, 0, first)
        whole, of_rest = write_confirmations(rig, first, first + rest)
        expected = _added(part, of_rest)
        say(f"{first + rest:,} events in the log")
        lake = rig.folder / "lake"
        writes = _lake_row(rig, session, first + rest, lake, say)

        def spark(name: str, read: Callable[[], DataFrame], totals: Totals) -> Contender:
            return Contender(name, lambda: timed(name, lambda: totals_of(read()), totals))

        def alone(name: str, read: Callable[[str, Offsets], Totals]) -> Contender:
            return Contender(name, lambda: timed(name, lambda: read(rig.kafka, beginning), part))

        def of_beginning() -> Replay:
            return replay(session, rig.kafka, ends=beginning)

        contenders = (
            spark(OURS, lambda: replay(session, rig.kafka, ends=whole).of(OrderConfirmed.TYPE), expected),
            spark(BARE, lambda: _bare(session, rig.kafka, whole), expected),
            spark(LAKE, lambda: open_lake(session, lake).of(OrderConfirmed.TYPE), expected),
            Contender(
                DUCKDB_LAKE, lambda: timed(DUCKDB_LAKE, lambda: replay_peers.duckdb_of_lake(lake), expected)
            ),
            alone(FOLD, replay_peers.python_fold),
            alone(DUCKDB, replay_peers.duckdb_fed),
            spark(
                UDF, lambda: replay_peers.scalar_udf_of_headers(_source(session, rig.kafka, beginning)), part
            ),
            spark(VALUE_UDF, lambda: replay_peers.scalar_udf(of_beginning(), arrow=False), part),
            spark(ARROW_UDF, lambda: replay_peers.scalar_udf(of_beginning(), arrow=True), part),
        )
        windows = interleave(contenders, effort.windows, say)
        peak = _peak_megabytes()
        session.stop()
        by_cores = _cores_row(rig, whole, expected, effort, say)
    row = _judged(Measured(f"replay, {first + rest:,} events", "events/s", windows, name="replay"))
    row.notes.append(
        f"all but {OURS}, {BARE}, {LAKE} and {DUCKDB_LAKE}: the first {first:,} events; totals the same in each window"
    )
    row.notes.append(f"Spark's JVM at most {peak:,.0f} MiB resident; its start is not measured")
    return [row, by_cores, *writes]


def _cores_row(rig: Rig, ends: Offsets, expected: Totals, effort: Effort, say: Say) -> Measured:
    """The same replay with one core, two, four, as far as this machine has them: an efficiency of 1.0 is twice as fast
    with two. The broker takes its part of the same cores."""

    def with_cores(cores: int) -> Contender:
        def measure() -> Window:
            with spark_of(rig, f"local[{cores}]") as session:
                read = replay(session, rig.kafka, ends=ends).of(OrderConfirmed.TYPE)
                totals_of(read.limit(10_000))  # warm
                return timed(f"{cores} cores", lambda: totals_of(read), expected)

        return Contender(f"local[{cores}]", measure)

    available = len(os.sched_getaffinity(0))
    counts = [cores for cores in (4, 2, 1) if cores <= available]
    windows = interleave([with_cores(cores) for cores in counts], min(effort.windows, LAKE_WINDOWS), say)
    row = Measured("replay by cores", "events/s", windows, name="cores")
    efficiency = row.ratio("local[1]").median / counts[0]
    row.reach(f"efficiency ≥0.7 with {counts[0]} cores", efficiency, 0.7)
    return row


def _judged(row: Measured) -> Measured:
    row.reach("≥120,000/s with headers", row.spread().median, 120_000)
    row.reach("≥200,000/s without", row.spread(BARE).median, 200_000)
    row.reach("≥2× a Python fold", row.ratio(FOLD).median, 2.0)
    for udf in (UDF, VALUE_UDF, ARROW_UDF):
        row.reach(f"≥6× a scalar Python UDF ({udf})", row.ratio(udf).median, 6.0)
    return row


def _lake_row(rig: Rig, session: SparkSession, count: int, lake: Path, say: Say) -> list[Measured]:
    """Write the whole log into a new lake; then again, with nothing new."""

    def write(folder: Path) -> float:
        began = time.perf_counter()
        update(session, rig.kafka, folder, lambda _: None)
        seconds = time.perf_counter() - began
        copied = open_lake(session, folder).of(OrderConfirmed.TYPE).count()
        if copied != count:
            raise Unmeasurable(f"the lake has {copied} of {count} events")
        return seconds

    def new() -> Window:
        return Window(count / write(rig.folder / f"lake-{uuid4().hex}"))

    written = interleave([Contender("the lake's update", new)], LAKE_WINDOWS, say)
    write(lake)
    again = (
        Contender("nothing new", lambda: Window(write(lake))),
        Contender("as a job, Spark's start with it", lambda: Window(_job(rig, lake))),
    )
    copying = Measured(f"lake write, {count:,} events", "events/s", written)
    repeated = Measured("lake, nothing new", "s", interleave(again, LAKE_WINDOWS, say), lower_is_better=True)
    repeated.reach("≤10 s", repeated.spread().median, 10.0, at_least=False)
    return [copying, repeated]


def _job(rig: Rig, lake: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "analytics.jobs.lake", "update", "--lake", str(lake)],
        env={**os.environ, "DAYBOOK_KAFKA": rig.kafka, "DAYBOOK_SPARK_JARS": str(jars_folder("spark"))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unmeasurable(done.stderr[-2000:])
    return time.perf_counter() - began


@contextmanager
def spark_of(rig: Rig, master: str = "local[*]") -> Iterator[SparkSession]:
    os.environ.update(spark_environment())
    settings = AnalyticsSettings(
        spark_jars=jars_folder("spark"), spark_scratch=rig.folder / "spark", spark_master=master
    )
    session = open_session("bench", settings)
    try:
        yield session
    finally:
        session.stop()


def write_confirmations(rig: Rig, first: int, last: int) -> tuple[Offsets, Totals]:
    """Confirmations from the `first` to the `last`; the offsets behind them, and their totals."""
    totals: Totals = {}

    def confirmations() -> Iterator[Envelope[OrderConfirmed]]:
        for number in range(first, last):
            country, units, gross = COUNTRIES[number % len(COUNTRIES)], number % 9 + 1, number * 10_000
            events, before, counted, _ = totals.get(country, (0, 0, 0, 0))
            totals[country] = (events + 1, before + gross, counted + units, 1)
            skus = (f"sku-{number % 500}", f"sku-{number % 499}")
            body = OrderConfirmed(f"o-{number}", bulk.AT + number, skus, country, "GBP", units, gross)
            yield bulk.event(f"o-{number}", 1, body)

    bulk.put_events(rig.kafka, confirmations(), PER_TRANSACTION)
    return stable_ends(rig.kafka, [TOPIC]), totals


def _added(some: Totals, others: Totals) -> Totals:
    return {
        country: (events + more, gross + others[country][1], units + others[country][2], 1)
        for country, (events, gross, units, _) in some.items()
        for more in [others[country][0]]
    }


def _bare(session: SparkSession, kafka: str, ends: Offsets) -> DataFrame:
    """Read the values only."""
    source = _source(session, kafka, ends, includeHeaders="false")
    schema = load_lock().text(load_lock().ids(OrderConfirmed.TYPE)[-1])
    event = from_avro(F.expr("substring(value, 6)"), schema, {"mode": "PERMISSIVE"})
    return source.select(event.alias("event")).select("event.*", F.lit(1).alias("version"))


def _source(session: SparkSession, kafka: str, ends: Offsets, **options: str) -> DataFrame:
    return (
        session.read.format("kafka")
        .options(**SOURCE | options)
        .options(**Connection(kafka).java("kafka."))
        .option("assign", json.dumps({topic: sorted(partitions) for topic, partitions in ends.items()}))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )


def totals_of(events: DataFrame) -> Totals:
    summed = events.groupBy("country").agg(F.count("*"), F.sum("gross"), F.sum("units"), F.max("version"))
    return {country: tuple(rest) for country, *rest in summed.collect()}


def timed(name: str, find: Callable[[], Totals], expected: Totals) -> Window:
    began = time.perf_counter()
    totals = find()
    passed = time.perf_counter() - began
    if totals != expected:
        raise Unmeasurable(f"{name} found {totals}, expected {expected}")
    return Window(_events(expected) / passed)


def _events(totals: Mapping[str, tuple[int, int, int, int]]) -> int:
    return sum(events for events, *_ in totals.values())


def spark_jvm() -> psutil.Process:
    """The JVM of the open session."""
    children = psutil.Process().children(recursive=True)
    children = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    (spark,) = (child for child in children if any("SparkSubmit" in part for part in child.cmdline()))
    return spark


def _peak_megabytes() -> float:
    """The peak memory of Spark's JVM since its start."""
    status = Path(f"/proc/{spark_jvm().pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
