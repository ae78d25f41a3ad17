"""What batching, compression and the size of records do to throughput and latency, drawn."""

from __future__ import annotations

import lzma
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from infra.cluster.cluster import BROKERS
from infra.cluster.moves import DURABLE, create_placed, delete_topics
from infra.cluster.rig import Rig
from infra.drills.cluster.chart import chart
from infra.drills.report import DrillReport
from infra.embedded.errors import NotReady
from infra.settings import ROOT
from infra.sites.steps import Show
from services.kernel.envelope import format_time, now_micros

WINDOW_SECONDS = 2.0
FLUSH_SECONDS = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINGERS = (0, 2, 10, 50)  # milliseconds
SIZES = (128, 1024, 8 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024)
OF_EVENTS = 512  # bytes: about an order of a few lines
# Under way at once, in bytes: what a client sends ahead decides the latency that it sees.
AHEAD_BYTES = 1024 * 1024
MIB = 1024 * 1024


@dataclass
class Window:
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
    bootstrap = rig.cluster.bootstrap
    _window(bootstrap, topic, text, OF_EVENTS, "none", 2)  # cold code misleads
    batching, by_size = {}, {}
    for codec in CODECS:
        show(f"{codec}: batches")
        found = [_window(bootstrap, topic, text, OF_EVENTS, codec, linger) for linger in LINGERS]
        batching[codec] = [(each.throughput, each.latency(0.5)) for each in found]
        for linger, each in zip(LINGERS, found, strict=True):
            _told(report, f"{codec}, linger {linger} ms, {OF_EVENTS} B", each)
    for codec in ("none", "lz4"):
        show(f"{codec}: sizes")
        found = [_window(bootstrap, topic, text, size, codec, 2) for size in SIZES]
        by_size[f"{codec}: MiB/s"] = [
            (size, each.throughput) for size, each in zip(SIZES, found, strict=True)
        ]
        by_size[f"{codec}: p99 ms"] = [
            (size, each.latency(0.99)) for size, each in zip(SIZES, found, strict=True)
        ]
        for size, each in zip(SIZES, found, strict=True):
            _told(report, f"{codec}, {size:,} B", each)
    delete_topics(rig.cluster.admin, [topic])
    title = f"Batching: records of {OF_EVENTS} B, acks=all, linger {', '.join(map(str, LINGERS))} ms"
    across = "MiB/s acknowledged, one producer, three replicas"
    (folder / "batching.svg").write_text(chart(title, across, "p50 until acknowledged, ms", batching))
    title = "Payload from 128 B to 1 MiB, acks=all, linger 2 ms"
    (folder / "payload.svg").write_text(chart(title, "bytes of a record", "MiB/s, and ms", by_size))
    return report


def _told(report: DrillReport, what: str, found: Window) -> None:
    report.nothing(f"{what}: records refused", found.refused)
    report.figures[f"{what}: MiB/s"] = found.throughput
    report.figures[f"{what}: p50 ms"] = found.latency(0.5)
    report.figures[f"{what}: p99 ms"] = found.latency(0.99)


def _window(bootstrap: str, topic: str, text: bytes, size: int, codec: str, linger: int) -> Window:
    """Write as fast as it goes with so much ahead. Raises NotReady where nothing is acknowledged."""
    found = Window()
    under_way = 0
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": linger,
            "batch.size": 262_144,
            "message.max.bytes": 4_000_000,
            "log_level": 0,
        }
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
        raise NotReady(f"nothing was acknowledged with {codec} and records of {size} bytes")
    return found


def _text() -> bytes:
    """Real invoices: random bytes would compress badly, one word too well."""
    with lzma.open(ROOT / "infra" / "data" / "online-retail.csv.xz") as file:
        return file.read(4 * MIB)
