"""The effect of batching, compression and record size on throughput and latency, as figures and as charts."""

import lzma
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, Message

from infra.base.errors import NotReady
from infra.base.settings import ROOT
from infra.lab.cluster.administration import DURABLE
from infra.lab.cluster.cluster import BROKERS
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills.cluster.promises import brokers, new_topic
from infra.lab.drills.drill import Course, Drill
from services.kernel.log import clients

# Every round measures every setting, which spreads other work of the machine; the middle one of three is reported.
ROUNDS, WINDOW_SECONDS = 3, 1.2
FLUSH_SECONDS = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINGERS = (0, 2, 10, 50)  # milliseconds
LINGER = 2
SIZES = (128, 1024, 8 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024)
OF_EVENTS = 512  # bytes: about an order of a few lines
# Bytes under way at once: what a client sends ahead determines the latency that it sees.
AHEAD_BYTES = 1024 * 1024
MIB = 1024 * 1024

Series = Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Setting:
    """The codec, the bytes of a record, and how long batches wait, in milliseconds."""

    codec: str
    size: int
    linger: int

    def __str__(self) -> str:
        return f"{self.codec}, {self.size:,} B, linger {self.linger} ms"


@dataclass
class CurveWindow:
    """What was measured in `seconds`: bytes acknowledged, and how long each record took, in seconds."""

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


def _measure_curves(course: Course[ClusterRig], _: None) -> None:
    """Write the same records under every setting; the pictures go to the folder of the run."""
    report, cluster = course.report, course.rig.cluster
    large = {**DURABLE, "max.message.bytes": "4194304"}
    topic, text = new_topic(cluster, "curves", large, [BROKERS] * 3), _text()
    batches = [Setting(codec, OF_EVENTS, linger) for codec in CODECS for linger in LINGERS]
    by_size = [Setting(codec, size, LINGER) for codec in ("none", "lz4") for size in SIZES]
    windows: dict[Setting, list[CurveWindow]] = {setting: [] for setting in (*batches, *by_size)}
    _window(cluster.bootstrap, topic, text, batches[0])  # cold code misleads
    for number in range(1, ROUNDS + 1):
        course.show(f"round {number} of {ROUNDS}")
        for setting, own in windows.items():
            own.append(_window(cluster.bootstrap, topic, text, setting))
    refused = [name for own in windows.values() for window in own for name in window.refused]
    report.none(f"records refused in {len(windows) * ROUNDS} windows", refused)
    middle = {
        setting: sorted(own, key=lambda window: window.throughput)[ROUNDS // 2]
        for setting, own in windows.items()
    }
    for setting, window in middle.items():
        report.figures[f"{setting}: MiB/s"] = window.throughput
        report.figures[f"{setting}: p50 ms"] = window.latency(0.5)
        report.figures[f"{setting}: p99 ms"] = window.latency(0.99)
    _draw(middle, batches, by_size, course.run.folder)


def _draw(
    windows: Mapping[Setting, CurveWindow],
    batches: Sequence[Setting],
    by_size: Sequence[Setting],
    folder: Path,
) -> None:
    batching: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sizes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for setting in batches:
        window = windows[setting]
        batching[setting.codec].append((window.throughput, window.latency(0.5)))
    for setting in by_size:
        sizes[f"{setting.codec}: MiB/s"].append((setting.size, windows[setting].throughput))
        sizes[f"{setting.codec}: p99 ms"].append((setting.size, windows[setting].latency(0.99)))
    title = f"Batching: records of {OF_EVENTS} B, acks=all, linger {', '.join(map(str, LINGERS))} ms"
    across = "MiB/s acknowledged, one producer, three replicas"
    draw_lines(folder / "batching.svg", title, across, "p50 until acknowledged, ms", batching)
    title = f"Payload from 128 B to 1 MiB, acks=all, linger {LINGER} ms"
    draw_lines(folder / "payload.svg", title, "bytes of a record", "MiB/s, and ms", sizes)


def _window(bootstrap: str, topic: str, text: bytes, setting: Setting) -> CurveWindow:
    """Write as fast as possible, with so much under way. Raises NotReady where nothing is acknowledged."""
    window, size = CurveWindow(), setting.size
    under_way = 0
    producer = clients.writer(
        bootstrap,
        {
            "compression.type": setting.codec,
            "linger.ms": setting.linger,
            "batch.size": 262_144,
            "message.max.bytes": 4_000_000,
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
                window.refused.append(error.name())
                return
            window.payload += size
            window.took.append(time.perf_counter() - sent)

        producer.produce(topic, text[start : start + size], str(number), on_delivery=delivered)
        under_way += size
        number += 1
        producer.poll(0)
    producer.flush(FLUSH_SECONDS)
    window.seconds = time.perf_counter() - began
    if not window.took:
        raise NotReady(f"nothing was acknowledged: {setting}")
    return window


def _text() -> bytes:
    """Real invoices: random bytes would compress badly, one word too well."""
    with lzma.open(ROOT / "infra" / "data" / "online-retail.csv.xz") as file:
        return file.read(4 * MIB)


def draw_lines(file: Path, title: str, across: str, up: str, series: Series) -> None:
    """Draw a line chart as SVG with two logarithmic axes. Coordinates are above zero; points are joined in their
    order."""
    # Imported here: matplotlib is slow to import, and no other command needs it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name, points in series.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
    axes.set(title=title, xlabel=across, ylabel=up, xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)


CURVES = Drill(
    "cluster curves",
    "Measure and draw batching, compression and sizes of records from 128 B to 1 MiB.",
    rig=brokers,
    promises=(_measure_curves,),
)
