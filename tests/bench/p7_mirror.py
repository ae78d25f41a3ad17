"""P7: the mirror's delay at 1,000 events/s, and how fast it catches up after it stood still.

Each contender has its own topic between the same two brokers. Standing still is SIGSTOP: nothing but the
backlog is waited for afterwards.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition

from infra.stack.embedded.child import Child, Program
from infra.stack.embedded.kafka import prepare_mirror
from infra.stack.mirror_settings import MirrorPlace
from services.kernel.log.clients import follower
from services.kernel.log.reader import partitions_of
from services.kernel.log.transactions import transactional_producer
from tests.bench.harness import Contender, Effort, Measured, Say, Unmeasurable, Window, interleave
from tests.bench.rig import Rig
from tests.bench.statistics import quantile
from tests.ports import free_ports

RATE, PER_TRANSACTION = 1_000, 10
BACKLOG = 100_000
VALUE_BYTES = 240
HEADERS = [(f"ce_{name}", b"x" * 24) for name in ("id", "type", "source", "subject", "time", "sequence")]
START_SECONDS, PATIENCE = 120.0, 120.0
OURS, PLAIN = "MirrorMaker2", "plain Python"


@dataclass(frozen=True)
class Mirror:
    """A running mirror and its topic, between two brokers."""

    name: str
    topic: str
    child: Child
    source: str
    target: str

    def delay(self, seconds: float) -> Window:
        """p99 in ms, from the commit's beginning at the source to a read_committed reader at the target."""
        count = int(seconds * RATE)
        with _Arrivals(self) as arrivals:
            writer = threading.Thread(target=_write, args=(self, count, 1 / RATE))
            writer.start()
            delays = arrivals.take(count)
            writer.join()
        delays.sort()
        return Window(1000 * quantile(delays, 0.99), {"p50 ms": 1000 * quantile(delays, 0.5)})

    def catch_up(self, backlog: int) -> Window:
        """Records per second, from the moment the mirror continues to the last record of the backlog."""
        with _Arrivals(self) as arrivals:
            os.killpg(self.child.pid, signal.SIGSTOP)
            _write(self, backlog, 0.0)
            began = time.perf_counter()
            os.killpg(self.child.pid, signal.SIGCONT)
            arrivals.take(backlog)
            return Window(backlog / (time.perf_counter() - began))


class _Arrivals:
    """A reader at the end of the mirror's topic at the target."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._consumer = follower(mirror.target, options={"fetch.wait.max.ms": 5})

    def __enter__(self) -> _Arrivals:
        partitions = partitions_of(self._mirror.target, self._mirror.topic)
        ends = [TopicPartition(self._mirror.topic, number) for number in partitions]
        for end in ends:
            end.offset = self._consumer.get_watermark_offsets(end, timeout=30)[1]
        self._consumer.assign(ends)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def take(self, count: int) -> list[float]:
        """The delays of the next records in seconds. Raises Unmeasurable when they do not arrive."""
        delays: list[float] = []
        until = time.monotonic() + PATIENCE
        while len(delays) < count:
            records = self._consumer.consume(5_000, 0.01)
            now = time.time()
            delays += [
                now - float((record.value() or b"").split()[0]) for record in records if not record.error()
            ]
            if time.monotonic() > until:
                raise Unmeasurable(f"{self._mirror.name} copied {len(delays):,} of {count:,} records")
        return delays


def run(effort: Effort, say: Say) -> list[Measured]:
    with Rig(postgres=False, heap_megabytes=256) as source, Rig(postgres=False, heap_megabytes=256) as target:
        mirrors = [_mirror_maker(source, target), _plain(source, target)]
        try:
            for mirror in mirrors:
                _awake(mirror, say)
            return _rows(mirrors, effort, say)
        finally:
            for mirror in mirrors:
                mirror.child.kill()


def _rows(mirrors: list[Mirror], effort: Effort, say: Say) -> list[Measured]:
    backlog = BACKLOG // 4 if effort.quick else BACKLOG
    delays = interleave(_each(mirrors, lambda of: of.delay(effort.seconds)), effort.windows, say)
    rates = interleave(_each(mirrors, lambda of: of.catch_up(backlog)), effort.windows, say)
    delay = Measured(f"delay p99 at {RATE:,} events/s", "ms", delays, lower_is_better=True)
    delay.reach("≤1 s", delay.spread().median, 1000.0, at_least=False)
    rate = Measured(f"catching up with {backlog:,} events", "events/s", rates)
    rate.reach("≥10,000 events/s", rate.spread().median, 10_000.0)
    rate.notes.append("MirrorMaker2 keeps its positions in the same transactions; the plain one keeps none.")
    return [delay, rate]


def _each(mirrors: list[Mirror], measure: Callable[[Mirror], Window]) -> list[Contender]:
    return [Contender(mirror.name, lambda mirror=mirror: measure(mirror)) for mirror in mirrors]  # type: ignore[misc]


def _mirror_maker(source: Rig, target: Rig) -> Mirror:
    (port,) = free_ports(1)
    topic = "order.events"
    mirror_place = MirrorPlace(
        target.folder / "mirror", port, "home", "away", source.kafka, target.kafka, [topic]
    )
    return Mirror(
        OURS, topic, _started(prepare_mirror(mirror_place), target.folder), source.kafka, target.kafka
    )


def _plain(source: Rig, target: Rig) -> Mirror:
    topic = "inventory.events"
    command = (sys.executable, "-m", "tests.bench.peers.plain_mirror", source.kafka, target.kafka, topic)
    program = Program("plain", command, dict(os.environ))
    return Mirror(PLAIN, topic, _started(program, target.folder), source.kafka, target.kafka)


def _started(program: Program, folder: Path) -> Child:
    return Child(program, folder / f"{program.name}.log")


def _awake(mirror: Mirror, say: Say) -> None:
    """Wait until the mirror has copied a first record."""
    began = time.perf_counter()
    with _Arrivals(mirror) as arrivals:
        _write(mirror, PER_TRANSACTION, 0.0)
        arrivals.take(PER_TRANSACTION)
    say(f"{mirror.name} copies after {time.perf_counter() - began:.1f} s")


def _write(mirror: Mirror, count: int, every: float) -> None:
    """Write `count` records in transactions, `every` seconds apart (0: as fast as it goes, in large ones)."""
    producer = transactional_producer(mirror.source, f"bench-writer-{mirror.topic}", 60_000)
    producer.init_transactions(60)
    size = PER_TRANSACTION if every else 5_000
    began = time.perf_counter()
    for start in range(0, count, size):
        if every:
            time.sleep(max(0.0, began + start * every - time.perf_counter()))
        producer.begin_transaction()
        value = f"{time.time()} ".encode().ljust(VALUE_BYTES, b"x")
        for number in range(start, min(start + size, count)):
            producer.produce(mirror.topic, value, f"key-{number}", partition=number % 2, headers=HEADERS)
        producer.commit_transaction(60)
