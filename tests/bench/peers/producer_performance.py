"""Kafka's own ProducerPerformance: the broker's throughput, in transactions of 100 ms."""

from __future__ import annotations

import re
import subprocess

from infra.lab.cluster.administration import connection_file
from infra.stack.embedded.java import classpath, find_java
from tests.bench.harness import Unmeasurable, Window

_SUMMARY = re.compile(r"^\d+ records sent, ([0-9.]+) records/sec", re.MULTILINE)


def produce(address: str, topic: str, count: int, record_bytes: int) -> Window:
    """Write `count` records of `record_bytes`; the figure that it reports excludes the JVM's start."""
    with connection_file(address) as connection:
        done = subprocess.run(
            _command(connection, topic, count, record_bytes),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    rates = _SUMMARY.findall(done.stdout)
    if done.returncode or not rates:
        raise Unmeasurable(f"ProducerPerformance: {(done.stdout + done.stderr)[-1500:]}")
    return Window(float(rates[-1]))


def _command(connection: str, topic: str, count: int, record_bytes: int) -> list[str]:
    return [
        *(str(find_java().executable), "-Xmx256m", "-cp", classpath("kafka")),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--command-config", connection, "--topic", topic, "--num-records", str(count)),
        *("--record-size", str(record_bytes), "--throughput", "-1", "--warmup-records", str(count // 4)),
        *("--transactional-id", "bench-performance", "--transaction-duration-ms", "100"),
    ]
