"""What a worker reports: Prometheus metrics, and whether it is alive and ready."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.kernel.log.reader import LogTail, NotKnown

COMMANDS = Counter(
    "daybook_commands", "Commands executed, by type and outcome", ["service", "type", "outcome"]
)
BATCH = Histogram(
    "daybook_batch_commands",
    "Commands per transaction",
    ["service"],
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500),
)
TRANSACTION = Histogram(
    "daybook_transaction_seconds",
    "Begin to commit",
    ["service"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
)
ABORTED = Counter("daybook_aborted_transactions", "Batches rolled back and executed again", ["service"])
RESTORE = Gauge("daybook_restore_seconds", "From start to ready", ["service"])
RESTED = Counter("daybook_entities_rested", "Entities evicted: kept as their encoded snapshots", ["service"])
PARKED = Counter("daybook_parked_commands", "Commands parked by this process", ["service"])

STALLED_SECONDS = 15.0
LAG_SECONDS = 1.0  # scrapes within this time get one measurement
ASK_SECONDS = 2.0


class Followed(NamedTuple):
    """A lag, by the name of its metric: what is left behind the next offset of each topic and partition."""

    name: str
    about: str
    positions: Callable[[], Mapping[str, dict[int, int]]]


class WorkerLag(Collector):
    """How far the worker is behind, measured at each scrape, in the thread that serves it.

    It does not depend on the loop, which may hang in a transaction. What is not known is absent.
    """

    def __init__(self, service: str, bootstrap: str, followed: Callable[[], Followed | None]) -> None:
        self._service, self._tail, self._followed = service, LogTail(bootstrap), followed
        self._lock = threading.Lock()
        self._measured: tuple[float, Followed | None, int | None] = (0.0, None, None)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would collect values before there are any."""
        return ()

    def collect(self) -> Iterable[Metric]:
        followed = self._followed()
        lag = None if followed is None else self._behind(followed)
        is_known = GaugeMetricFamily(
            "daybook_lag_known", "1 where the lag is known, else 0", labels=["service"]
        )
        is_known.add_metric([self._service], float(lag is not None))
        yield is_known
        if followed is not None and lag is not None:
            behind = GaugeMetricFamily(followed.name, followed.about, labels=["service"])
            behind.add_metric([self._service], lag)
            yield behind

    def _behind(self, followed: Followed) -> int | None:
        with self._lock:
            at, of, lag = self._measured
            if of is not followed or time.monotonic() - at > LAG_SECONDS:
                positions = [
                    ((topic, number), offset)
                    for topic, positions in followed.positions().items()
                    for number, offset in positions.copy().items()
                ]
                try:
                    lag = sum(behind.records for behind in self._tail.behind(positions, ASK_SECONDS).values())
                except NotKnown:
                    lag = None
                self._measured = time.monotonic(), followed, lag
            return lag


class WorkerMetrics:
    """The worker's own account of itself. `ticked` at every turn of the loop; a loop that does not turn is
    not alive."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._followed: Followed | None = None
        self._reason, self._layout = "starting", 0
        self.status: Mapping[str, object] = {}
        self._ticked = time.monotonic()

    def measure_lag(self, bootstrap: str) -> None:
        """At every scrape, for the life of the process."""
        REGISTRY.register(WorkerLag(self._service, bootstrap, lambda: self._followed))

    def committed(self, counts: Mapping[tuple[str, str], int], commands: int, seconds: float) -> None:
        """Account for one transaction of `commands` commands that took `seconds`."""
        for (kind, outcome), number in counts.items():
            COMMANDS.labels(self._service, kind, outcome).inc(number)
            if outcome == "failed":
                PARKED.labels(self._service).inc(number)
        BATCH.labels(self._service).observe(commands)
        TRANSACTION.labels(self._service).observe(seconds)

    def rested(self, entities: int) -> None:
        if entities:
            RESTED.labels(self._service).inc(entities)

    def waiting(self, reason: str) -> None:
        """There is no slot to own yet, for this reason."""
        self._reason = reason

    def placed(self, layout: int) -> None:
        """The slot is one of the slot layout with this number."""
        self._reason, self._layout = "starting", layout

    def restored(self, seconds: float, epoch: int, executed: Mapping[str, dict[int, int]]) -> None:
        """The slot is owned, and the takeover's commands are sent. `executed` stays current: the next offsets of both
        inputs."""
        self._followed = Followed(
            "daybook_lag_events", "Records with commands waiting in the log", lambda: executed
        )
        RESTORE.labels(self._service).set(seconds)
        self.status = {"status": "active", "epoch": epoch, "layout": self._layout}
        self._reason = ""
        self.ticked()

    def standing_by(self, seconds: float, folded: Mapping[str, dict[int, int]]) -> None:
        """`folded` stays current: the next offset of each topic and partition."""
        self._followed = Followed(
            "daybook_standby_lag_events", "Records that a standby has not folded yet", lambda: folded
        )
        RESTORE.labels(self._service).set(seconds)
        self.status = {"status": "standby", "layout": self._layout}
        self._reason = ""
        self.ticked()

    def activating(self) -> None:
        self._reason, self._followed = "becoming active", None

    def ticked(self) -> None:
        self._ticked = time.monotonic()

    def why_not_alive(self) -> str:
        """Empty while the loop turns (a slot that is still restoring is alive)."""
        if self._reason or time.monotonic() - self._ticked < STALLED_SECONDS:
            return ""
        return f"no turn of the loop for {STALLED_SECONDS:.0f} s"

    def why_not_ready(self) -> str:
        """Empty when the slot is restored, and owned or standing by."""
        return self._reason or self.why_not_alive()
