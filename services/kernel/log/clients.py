"""What every Kafka client of a service is configured with."""

from __future__ import annotations

from typing import Any


def client(bootstrap: str) -> dict[str, Any]:
    """Settings for a broker that goes away and comes back; the caller adds its own."""
    return {
        "bootstrap.servers": bootstrap,
        # The default of 10 s is how long a client may look away from a broker that is back.
        "reconnect.backoff.max.ms": 500,
        # By default a client that finds all brokers down forgets those that it learned, and goes on waiting
        # for a coordinator among them: `send_offsets_to_transaction` hangs (librdkafka's issue 5511).
        "metadata.recovery.strategy": "none",
        # Fatal errors only. Level 3 writes a line for every attempt to connect, 30 a second.
        "log_level": 2,
    }
