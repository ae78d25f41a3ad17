"""What batching, compression and the size of records do to throughput and latency, drawn."""

from __future__ import annotations

import lzma
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, Message

from infra.base.errors import NotReady
from infra.base.settings import ROOT
from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS
from infra.lab.cluster.moves import DURABLE, create_placed, delete_topics
from infra.lab.cluster.rig import Rig
from infra.lab.drills.cluster.chart import chart
from infra.lab.drills.report import DrillReport
from services.kernel.log import clients
from services.kernel.record.envelope import format_time, now_micros

# Rounds go over everything: what else the machine does is spread, and the middle one of three is told.
ROUNDS, WINDOW_SECONDS = 3, 1.2
FLUSH_SECONDS = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINGERS = (0, 2, 10, 50)  # milliseconds
LINGER = 2
SIZES = (128, 1024, 8 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024)
OF_EVENTS = 512  # bytes: about an order of a few lines
# Under way at once, in bytes: what a client sends ahead decides the latency that it sees.
AHEAD_BYTES = 1024 * 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class Setting:
    """What one window tries: the codec, a record's bytes, and how long batches wait, in milliseconds."""

    codec: str
    size: int
    linger: int

    def __str__(self) -> str:
        return f"{self.codec}, {self.size:,} B, linger {self.linger} ms"


@dataclass
class CurveWindow:
    """One run: bytes acknowledged a second, and how long each record took, in seconds."""

    seconds: float = 0.0
    payload: int = 0
    refused: list[str] = field(default_factory=list)
    took: list[float] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """MiB of payload a second."""
        return self.payload / self.seconds / MIB

    def latency(self, share: float) -> float:
        """Milliseconds within which this share of the records was acknowledged."""
        return sorted(self.took)[int(share * (len(self.took) - 1))] * 1000


def curves(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole; pictures go to `folder`. The shop is not needed."""
    report = DrillReport("cluster curves", seed, format_time(now_micros()))
    topic, text = f"drill.curves-{time.time_ns():x}", _text()
    create_placed(rig.cluster.admin, topic, [BROKERS] * 3, {**DURABLE, "max.message.bytes": "4194304"})
    batches = [Setting(codec, OF_EVENTS, linger) for codec in CODECS for linger in LINGERS]
    by_size = [Setting(codec, size, LINGER) for codec in ("none", "lz4") for size in SIZES]
    runs: dict[Setting, list[CurveWindow]] = {each: [] for each in (*batches, *by_size)}
    _window(rig.cluster.bootstrap, topic, text, batches[0])  # cold code misleads
    for number in range(1, ROUNDS + 1):
        show(f"round {number} of {ROUNDS}")
        for each in runs:
            runs[each].append(_window(rig.cluster.bootstrap, topic, text, each))
    delete_topics(rig.cluster.admin, [topic])
    middle = {
        each: sorted(found, key=lambda run: run.throughput)[ROUNDS // 2] for each, found in runs.items()
    }
    refused = [name for found in runs.values() for run in found for name in run.refused]
    report.nothing(f"records refused in {len(runs) * ROUNDS} windows", refused)
    for setting, found in middle.items():
        report.figures[f"{setting}: MiB/s"] = found.throughput
        report.figures[f"{setting}: p50 ms"] = found.latency(0.5)
        report.figures[f"{setting}: p99 ms"] = found.latency(0.99)
    _draw(middle, batches, by_size, folder)
    return report


def _middle(found: Sequence[CurveWindow]) -> CurveWindow:
    return sorted(found, key=lambda window: window.throughput)[len(found) // 2]


def _draw(
    found: Mapping[Setting, CurveWindow], batches: Sequence[Setting], by_size: Sequence[Setting], folder: Path
) -> None:
    batching: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sizes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in batches:
        batching[each.codec].append((found[each].throughput, found[each].latency(0.5)))
    for each in by_size:
        sizes[f"{each.codec}: MiB/s"].append((each.size, found[each].throughput))
        sizes[f"{each.codec}: p99 ms"].append((each.size, found[each].latency(0.99)))
    title = f"Batching: records of {OF_EVENTS} B, acks=all, linger {', '.join(map(str, LINGERS))} ms"
    across = "MiB/s acknowledged, one producer, three replicas"
    (folder / "batching.svg").write_text(chart(title, across, "p50 until acknowledged, ms", batching))
    title = f"Payload from 128 B to 1 MiB, acks=all, linger {LINGER} ms"
    (folder / "payload.svg").write_text(chart(title, "bytes of a record", "MiB/s, and ms", sizes))


def _window(bootstrap: str, topic: str, text: bytes, setting: Setting) -> CurveWindow:
    """Write as fast as it goes with so much ahead. Raises NotReady where nothing is acknowledged."""
    found, size = CurveWindow(), setting.size
    under_way = 0
    producer = clients.writer(
        bootstrap,
        {
            "compression.type": setting.codec,
            "linger.ms": setting.linger,
            "batch.size": 262_144,
            "message.max.bytes": 4_000_000,
            "log_level": 0,
        },
    )
    producer.list_topics(topic, timeout=FLUSH_SECONDS)
    began, number = time.perf_counter(), 0
    while (sent := time.perf_counter()) < began + WINDOW_SECONDS:
        if under_way >= max(AHEAD_BYTES, size):
            producer.poll(0.001)
            continue
        start = number * 131 % (len(text) - size)

        def delivered(error: KafkaError | None, _: Message, sent: float = sent) -> None:
            nonlocal under_way
            under_way -= size
            if error is not None:
                found.refused.append(error.name())
                return
            found.payload += size
            found.took.append(time.perf_counter() - sent)

        producer.produce(topic, text[start : start + size], str(number), on_delivery=delivered)
        under_way += size
        number += 1
        producer.poll(0)
    producer.flush(FLUSH_SECONDS)
    found.seconds = time.perf_counter() - began
    if not found.took:
        raise NotReady(f"nothing was acknowledged: {setting}")
    return found


def _text() -> bytes:
    """Real invoices: random bytes would compress badly, one word too well."""
    with lzma.open(ROOT / "infra" / "data" / "online-retail.csv.xz") as file:
        return file.read(4 * MIB)
