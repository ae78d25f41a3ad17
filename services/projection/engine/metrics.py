"""The projection's and the query API's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.projection.engine.lag import Lag

EVENTS = Counter("daybook_projected_events", "Events applied", ["read_model"])
BATCH = Histogram(
    "daybook_projection_batch_events",
    "Events per transaction",
    ["read_model"],
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
TRANSACTION = Histogram(
    "daybook_projection_transaction_seconds",
    "Fold and write, begin to commit",
    ["read_model"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
)
PLACE = ("read_model", "topic", "partition")


def committed(read_model: str, events: int, seconds: float) -> None:
    EVENTS.labels(read_model).inc(events)
    BATCH.labels(read_model).observe(events)
    TRANSACTION.labels(read_model).observe(seconds)


@contextmanager
def scraped(collector: Collector) -> Iterator[None]:
    """Registers `collector` until the end of the block."""
    REGISTRY.register(collector)
    try:
        yield
    finally:
        REGISTRY.unregister(collector)


class LagMetrics(Collector):
    """Collects the lag of the read models at each scrape; unknown values are absent."""

    def __init__(self, lag: Lag) -> None:
        self._lag = lag

    def describe(self) -> Iterable[Metric]:
        """Describes nothing: otherwise the registry would collect before there are values."""
        return ()

    def collect(self) -> Iterable[Metric]:
        stored, measured = self._lag.stored, self._lag.measured
        known_gauge = GaugeMetricFamily("daybook_lag_known", "1 where the lag is known, else 0")
        known_gauge.add_metric((), float(measured is not None))
        yield known_gauge
        events = GaugeMetricFamily("daybook_lag_events", "Events not applied yet", labels=PLACE)
        seconds = GaugeMetricFamily(
            "daybook_lag_seconds", "Age of the oldest event that is not applied yet", labels=PLACE
        )
        if measured:
            for tp, behind in measured.behind.items():
                events.add_metric(tp.labels, behind.records)
                seconds.add_metric(tp.labels, measured.seconds(tp))
        yield from (events, seconds)
        positions = GaugeMetricFamily("daybook_position", "Next offset to apply", labels=PLACE)
        parked = GaugeMetricFamily(
            "daybook_parked_keys", "Keys that wait behind an event that cannot be applied", labels=PLACE[:1]
        )
        if stored:
            for tp, position in stored.positions.items():
                positions.add_metric(tp.labels, position.next_offset)
            for name, keys in stored.parked.items():
                parked.add_metric((name,), keys)
        yield from (positions, parked)
