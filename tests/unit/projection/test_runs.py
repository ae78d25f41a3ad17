"""A rebuild takes the log in runs that fit into memory, whatever the size of its events."""

import pytest

from services.projection.engine import runs
from services.projection.engine.read_model import Record
from services.projection.engine.runs import Runs

PLACE = ("order.events", 0)


def record(offset: int, size: int) -> Record:
    return Record(*PLACE, offset, b"o", b"x" * size, ())


def test_large_events_make_short_runs_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RUN_BYTES", 100)
    sizes = [30, 30, 30, 30, 500, 10, 10, 10, 10]
    with Runs("127.0.0.1:1", {PLACE: 0}, most=3) as reader:
        reader._fetched[PLACE].extend(record(offset, size) for offset, size in enumerate(sizes))
        taken = []
        while run := reader._next_run(PLACE, end=len(sizes)):
            taken.append([record.offset for record in run])
    assert taken == [[0, 1, 2], [3, 4], [5, 6, 7], [8]]
