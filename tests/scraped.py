"""What a process tells at /metrics."""

from __future__ import annotations

from infra.base.http import local_http


def scrape(port: int, seconds: float = 10) -> str:
    """All metrics of a process, as Prometheus reads them."""
    return local_http().get(f"http://127.0.0.1:{port}/metrics", timeout=seconds).raise_for_status().text


def metric(port: int, name: str) -> float:
    """The sum of a metric over its labels; 0 where it has none yet."""
    lines = scrape(port).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))
