"""What a worker follows of `site.control` is whole: it is published at the end of what is there, not in between."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from contracts.kernel.records import SiteRole, SlotLayout
from services.kernel.log import clients
from services.kernel.log.control import CONTROL, Control, ControlWatch
from services.kernel.record.codec import encode


class _Record:
    """A record at an offset; without a value the event for the end of the partition."""

    def __init__(self, offset: int, key: bytes = b"", value: bytes | None = None) -> None:
        self._offset, self._key, self._value = offset, key, value

    def error(self) -> KafkaError | None:
        return None if self._value else KafkaError(KafkaError._PARTITION_EOF)

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value


class _Stop(Exception):
    """Ends the thread, which otherwise runs as long as the process."""


class _Broker:
    """Delivers records, each with the end that was known when it was fetched, and notes what was published before."""

    def __init__(self, watch: ControlWatch, script: list[tuple[_Record, int]]) -> None:
        self._watch, self._script, self._end = watch, script, 0
        self.published: list[tuple[int, list[str]]] = []

    def assign(self, _: Any) -> None:
        return

    def poll(self, _: float) -> _Record:
        seen = self._watch.control
        self.published.append((seen.role.epoch, sorted(seen.layouts)))
        if not self._script:
            raise _Stop
        record, self._end = self._script.pop(0)
        return record

    def get_watermark_offsets(self, _: Any, cached: bool) -> tuple[int, int]:
        assert cached, "a question to the broker for each record"
        return 0, self._end


def role(offset: int, epoch: int) -> _Record:
    return _Record(offset, b"role", encode(CONTROL, SiteRole("home", "active", epoch)))


def layout(offset: int, service: str) -> _Record:
    return _Record(offset, f"layout/{service}".encode(), encode(CONTROL, SlotLayout(service, 1, 1)))


def followed(monkeypatch: pytest.MonkeyPatch, *script: tuple[_Record, int]) -> list[tuple[int, list[str]]]:
    """What was published before each record, and at last."""
    watch = ControlWatch.__new__(ControlWatch)
    watch.control, watch._bootstrap = Control(), "127.0.0.1:1"
    broker = _Broker(watch, list(script))
    monkeypatch.setattr(clients, "reader", lambda *_: broker)
    with pytest.raises(_Stop):
        watch._follow()
    return broker.published


def test_records_that_came_together_are_published_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together = [(role(0, 4), 3), (layout(1, "order"), 3), (layout(2, "inventory"), 3)]
    assert followed(monkeypatch, *together) == [(1, []), (1, []), (1, []), (4, ["inventory", "order"])]


def test_a_later_record_is_published_without_the_event_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, (role(0, 4), 1), (role(7, 5), 8)) == [(1, []), (4, []), (5, [])]


def test_the_event_for_the_end_publishes_what_a_marker_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end lies behind a record that no reader gets."""
    assert followed(monkeypatch, (role(0, 4), 2), (_Record(2), 2)) == [(1, []), (1, []), (4, [])]


def test_what_was_published_does_not_change_with_the_next_record(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(layout(0, "order"), 1), (layout(1, "inventory"), 3)]
    assert followed(monkeypatch, *script)[-1] == (1, ["order"])
