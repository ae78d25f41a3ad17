"""Whose answer does not come is asked again, more and more rarely; deadlines are the clock's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from contracts.order.commands import ExpireOrder
from contracts.order.events import Line, OrderPlaced, ReservationsRecorded
from services.kernel.record.codec import decode
from services.kernel.worker.command_loop import SLOWEST_REDRIVE, CommandLoop
from services.kernel.worker.entities import Partition
from services.kernel.worker.entity import Entity, LoadedEntity
from services.kernel.worker.execution import Executor
from services.kernel.worker.retry_window import Window
from services.kernel.worker.staged import Staged
from services.kernel.worker.worker_metrics import WorkerMetrics
from services.order.service import ORDER

SECOND = 1_000_000
REDRIVE = 30
PLACED_AT = 1_800_000_000 * SECOND
LINES = (Line("A", 1, 1), Line("B", 1, 1))


class OneOrder:
    """A loop without a log, over an order that waits for the reservations of two SKUs."""

    def __init__(self, settle_by: int | None = None, recorded_at: int = PLACED_AT) -> None:
        self.partition: Partition[Any] = Partition(
            ORDER.decider.initial,
            ORDER.decider.forget,
            lambda _: LoadedEntity(Entity(None, 0, 0), ()),
            Window(24.0, 1000),
        )
        placed = OrderPlaced("o", "France", "EUR", PLACED_AT, LINES, None, (), 2, settle_by)
        self.publish(placed, recorded_at)
        slot: Any = SimpleNamespace(
            aggregate=ORDER, partitions={0: self.partition}, fold=SimpleNamespace(open_entities=()), epoch=1
        )
        executor = Executor(ORDER, {0: self.partition}, 1, 1)
        consumer: Any = None
        self.loop = CommandLoop(slot, consumer, executor, WorkerMetrics("order"), 0.005, REDRIVE)
        self.loop._set_timer(0, "o", self.partition.get("o"), PLACED_AT)

    def publish(self, event: Any, recorded_at: int) -> None:
        state, version, _ = self.partition.get("o")
        self.partition.put("o", Entity(ORDER.decider.evolve(state, event), version + 1, recorded_at))

    def asked(self, seconds: int) -> list[Any]:
        """The commands that go out when it is so long after the placing."""
        staged: Staged[Any] = Staged()
        now = PLACED_AT + seconds * SECOND
        self.loop._due(staged, now, now)
        return [decode(ask.value) for ask in staged.asks]


def test_each_time_half_as_often_down_to_a_bound() -> None:
    order = OneOrder()
    times = [second for second in range(24 * 3600) if order.asked(second)]
    waits = [after - before for before, after in zip([0, *times], times, strict=False)]
    doubled = [REDRIVE * 2**n for n in range(7)]
    assert waits[:7] == doubled
    assert set(waits[7:]) == {SLOWEST_REDRIVE * REDRIVE}


def test_whoever_got_an_answer_waits_anew() -> None:
    order = OneOrder()
    assert len(order.asked(REDRIVE)) == 2
    order.publish(ReservationsRecorded("o", PLACED_AT, ("A",)), PLACED_AT)
    assert order.asked(3 * REDRIVE) == []
    assert [command.sku for command in order.asked(4 * REDRIVE)] == ["B"]


def test_a_deadline_is_met_although_the_last_event_was_recorded_by_a_clock_ahead() -> None:
    day = 24 * 3600
    order = OneOrder(settle_by=PLACED_AT + 60 * SECOND, recorded_at=PLACED_AT + day * SECOND)
    assert len(order.asked(REDRIVE)) == 2
    assert order.asked(59) == []
    (given_up,) = order.asked(60)
    assert isinstance(given_up, ExpireOrder)
    assert given_up.occurred_at == PLACED_AT + 60 * SECOND
