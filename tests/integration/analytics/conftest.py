"""What the tests of the log's copies share."""

from pathlib import Path

import pytest

from tests.integration.analytics.log_writer import Topics, create_topics


@pytest.fixture
def topics(kafka: str) -> Topics:
    """Fresh topics of the test's own."""
    return create_topics(kafka)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Where the test may make a lake."""
    return tmp_path / "lake"
