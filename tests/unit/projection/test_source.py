"""The private names of Faust and aiokafka that the source leans on: a version that lost one fails here."""

from __future__ import annotations

import inspect

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_pinned_names_are_there() -> None:
    from services.projection.engine.source import PINNED, PINNED_ATTRIBUTES, check_pinned

    check_pinned()
    assert sum(len(names) for names in PINNED.values()) + len(PINNED_ATTRIBUTES) == 13


def test_faust_still_hard_codes_what_we_replace() -> None:
    """Where this fails, Faust may do it by itself: then remove our code."""
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

    text = inspect.getsource(AIOKafkaConsumerThread._create_worker_consumer)
    assert 'isolation_level: str = "read_uncommitted"' in text
    assert "fetch_max_wait_ms=1500" in text


def test_aiokafka_hands_the_isolation_level_to_its_fetcher() -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher

    assert READ_COMMITTED == 1
    assert "isolation_level=self._isolation_level" in inspect.getsource(AIOKafkaConsumer.start)
    assert "self._isolation_level = READ_COMMITTED" in inspect.getsource(Fetcher.__init__)
