"""What is decided about an order whose stream stopped, and what an API gets."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.order.commands import CancelOrder
from contracts.order.events import Line, OrderPlaced
from contracts.topics import SERVICE_OF
from services.kernel.record.codec import encode
from services.kernel.record.envelope import AuthContext, Metadata, ReplyAddress, write_headers
from services.kernel.worker.entities import Entity, Staged
from services.kernel.worker.execution import Executor
from services.order.service import ORDER
from tests.unit.kernel.executing import OneRecord, empty_partition

TOPIC, PLACED, UNKNOWN = "order.commands", "placed", "unknown"
OWN, FOREIGN = "alice", "mallory"
STOPPED, HIDDEN = ("failed", "stream_forked", 0), ("refused", "order_not_found", 0)


@pytest.mark.parametrize(
    ("order", "customer", "expected"),
    [
        (PLACED, OWN, STOPPED),
        (PLACED, None, STOPPED),
        (PLACED, FOREIGN, HIDDEN),
        (UNKNOWN, OWN, STOPPED),
        (UNKNOWN, FOREIGN, STOPPED),
    ],
)
def test_nothing_is_decided_and_strangers_do_not_learn_of_it(
    order: str, customer: str | None, expected: tuple[str, str, int]
) -> None:
    partition = empty_partition(ORDER)
    placed = OrderPlaced(PLACED, "France", "EUR", 1, (Line("A", 1, 1),), OWN, (), 2, None)
    partition.put(PLACED, Entity(ORDER.decider.evolve(ORDER.decider.initial, placed), 1, 1))
    partition.read.stopped |= {PLACED, UNKNOWN}
    executor = Executor(ORDER, {0: partition}, dict.fromkeys(SERVICE_OF, 1), 1)
    staged: Staged[Any] = Staged()
    executor.execute(cancellation(order, customer), staged, 1)
    ((outcome,),) = staged.replies.values()
    assert (outcome.kind, outcome.code, outcome.version) == expected
    assert not (staged.events or staged.parked or staged.outcomes or staged.outgoing)


def cancellation(order: str, customer: str | None) -> Any:
    metadata = Metadata(
        id=f"cancel-{order}",
        type=CancelOrder.TYPE,
        subject=order,
        source="test",
        recorded_at=1,
        correlation_id="c",
        causation_id="c",
        epoch=1,
        request_hash="hash",
        reply_to=ReplyAddress("order.outcomes", 0, "", ""),
        auth=AuthContext("user", customer or "staff"),
    )
    about = {"partition": 0, "headers": write_headers(metadata)}
    return OneRecord((TOPIC, encode(TOPIC, CancelOrder(order, "changed my mind", 1, customer)), order, about))
