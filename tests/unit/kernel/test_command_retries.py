"""A command without a reply is sent again, less and less often; deadlines follow the clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from contracts.order.commands import ExpireOrder
from contracts.order.events import Line, OrderPlaced, ReservationsRecorded
from contracts.topics import SERVICE_OF
from services.kernel.record.codec import decode
from services.kernel.worker.command_loop import MAX_BATCH, SLOWEST_REDRIVE, CommandLoop
from services.kernel.worker.entities import Entity, Staged
from services.kernel.worker.execution import Executor
from services.kernel.worker.worker_metrics import WorkerMetrics
from services.order.service import ORDER
from tests.unit.kernel.executing import empty_partition

SECOND = 1_000_000
REDRIVE = 30
ONE_EACH = dict.fromkeys(SERVICE_OF, 1)  # partitions of each topic
PLACED_AT = 1_800_000_000 * SECOND
LINES = (Line("A", 1, 1), Line("B", 1, 1))


class OneOrder:
    """A loop without a log, over an order that waits for the reservations of two SKUs."""

    def __init__(self, settle_by: int | None = None, recorded_at: int = PLACED_AT) -> None:
        self.partition = empty_partition(ORDER)
        placed = OrderPlaced("o", "France", "EUR", PLACED_AT, LINES, None, (), 2, settle_by)
        self.publish(placed, recorded_at)
        slot: Any = SimpleNamespace(
            aggregate=ORDER, partitions={0: self.partition}, fold=SimpleNamespace(open_entities=()), epoch=1
        )
        executor = Executor(ORDER, {0: self.partition}, ONE_EACH, 1)
        consumer: Any = None
        self.loop = CommandLoop(slot, consumer, executor, WorkerMetrics("order"), 0.005, REDRIVE)
        self.loop._set_timer(0, "o", self.partition.get("o"), PLACED_AT)

    def publish(self, event: Any, recorded_at: int) -> None:
        state, version, _ = self.partition.get("o")
        self.partition.put("o", Entity(ORDER.decider.evolve(state, event), version + 1, recorded_at))

    def sent_at(self, seconds: int) -> list[Any]:
        """The commands sent this many seconds after the order was placed."""
        staged: Staged[Any] = Staged()
        now = PLACED_AT + seconds * SECOND
        self.loop._due(staged, now)
        return [decode(message.value) for group in staged.outgoing for message in group.messages]


def test_the_wait_doubles_up_to_a_bound() -> None:
    order = OneOrder()
    times = [second for second in range(24 * 3600) if order.sent_at(second)]
    waits = [after - before for before, after in zip([0, *times], times, strict=False)]
    doubled = [REDRIVE * 2**n for n in range(7)]
    assert waits[:7] == doubled
    assert set(waits[7:]) == {SLOWEST_REDRIVE * REDRIVE}


def test_a_reply_restarts_the_wait() -> None:
    order = OneOrder()
    assert len(order.sent_at(REDRIVE)) == 2
    order.publish(ReservationsRecorded("o", PLACED_AT, ("A",)), PLACED_AT)
    assert order.sent_at(3 * REDRIVE) == []
    assert [command.sku for command in order.sent_at(4 * REDRIVE)] == ["B"]


def test_a_deadline_is_met_although_the_last_event_was_recorded_by_a_clock_ahead() -> None:
    day = 24 * 3600
    order = OneOrder(settle_by=PLACED_AT + 60 * SECOND, recorded_at=PLACED_AT + day * SECOND)
    assert len(order.sent_at(REDRIVE)) == 2
    assert order.sent_at(59) == []
    (given_up,) = order.sent_at(60)
    assert isinstance(given_up, ExpireOrder)
    assert given_up.occurred_at == PLACED_AT + 60 * SECOND


def test_a_batch_that_sends_much_leaves_room_for_what_is_due() -> None:
    order, staged = OneOrder(), Staged[Any](sent=MAX_BATCH)
    order.loop._due(staged, PLACED_AT + REDRIVE * SECOND)
    assert staged.sent == MAX_BATCH + len(LINES)
