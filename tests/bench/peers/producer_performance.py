"""Kafka's own ProducerPerformance: what the broker takes, in transactions of 100 ms."""

from __future__ import annotations

import re
import subprocess

from infra.stack.embedded.jars import classpath
from infra.stack.embedded.java import find_java
from tests.bench.harness import Unmeasurable, Window

_SUMMARY = re.compile(r"^\d+ records sent, ([0-9.]+) records/sec", re.MULTILINE)


def produce(bootstrap: str, topic: str, count: int, record_bytes: int) -> Window:
    """`count` records of `record_bytes`; its own figure, the JVM's start is not in it."""
    command = [
        *(str(find_java().executable), "-Xmx256m", "-cp", classpath("kafka")),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(count)),
        *("--record-size", str(record_bytes), "--throughput", "-1", "--warmup-records", str(count // 4)),
        *("--transactional-id", "bench-performance", "--transaction-duration-ms", "100"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = _SUMMARY.findall(done.stdout)
    if done.returncode or not found:
        raise Unmeasurable(f"ProducerPerformance: {(done.stdout + done.stderr)[-1500:]}")
    return Window(float(found[-1]))
