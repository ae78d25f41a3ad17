"""What the projection tells Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

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
POSITION = Gauge("daybook_position", "Next offset to apply", ["read_model", "topic", "partition"])
LAG_EVENTS = Gauge("daybook_lag_events", "Events not applied yet", ["read_model", "topic", "partition"])
LAG_SECONDS = Gauge(
    "daybook_lag_seconds", "How long the read model has been behind", ["read_model", "topic", "partition"]
)
PARKED = Gauge("daybook_parked_keys", "Keys that wait behind an event that cannot be applied", ["read_model"])


def committed(read_model: str, events: int, seconds: float) -> None:
    EVENTS.labels(read_model).inc(events)
    BATCH.labels(read_model).observe(events)
    TRANSACTION.labels(read_model).observe(seconds)
