"""Every test can ask for the real stack (see tests/stack.py)."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.distribution import (
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from tests.spark import spark, spark_environment
from tests.stack import database_url, fresh_database, kafka, pytest_addoption, stack_folder

__all__ = [
    "database_url",
    "fresh_database",
    "kafka",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
    "spark",
    "spark_environment",
    "stack_folder",
]


@pytest.fixture(autouse=True)
def principal() -> Iterator[None]:
    """A command that runs in this process sets as whom it connects to Kafka: the next test does not inherit that."""
    yield
    os.environ.pop("DAYBOOK_PRINCIPAL", None)


# How wide a table may be is each test's own matter: pytest-xdist would fix it for all consoles of a process.
os.environ.pop("COLUMNS", None)
# Every JVM here is short-lived and small: code that is quick to compile halves the time of a Spark test.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Examples are bounded, and the same in every run; `HYPOTHESIS_PROFILE=deep` searches on.
settings.register_profile(
    "ci",
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("ci"), max_examples=10_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
