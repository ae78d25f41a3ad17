"""A repeat of a request from before its command id named the principal: it has the former id too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contracts.inventory.commands import ReceiveStock
from contracts.kernel.records import Outcome
from contracts.topics import SERVICE_OF
from services.inventory.service import INVENTORY
from services.kernel.record.codec import encode
from services.kernel.record.envelope import AuthContext, Metadata, ReplyAddress, write_headers
from services.kernel.worker.entities import Staged
from services.kernel.worker.execution import Executor
from tests.unit.kernel.executing import OneRecord, empty_partition

TOPIC, SKU = "inventory.commands", "sku"
COMMAND = ReceiveStock(SKU, 5, "DN-1", 1)


def request(command_id: str, former_id: str = "", subject: str = "", request_hash: str = "same") -> Metadata:
    return Metadata(
        id=command_id,
        type=COMMAND.TYPE,
        subject=SKU,
        source="test",
        recorded_at=1,
        correlation_id="c",
        causation_id="c",
        epoch=1,
        request_hash=request_hash,
        reply_to=ReplyAddress("inventory.outcomes", 0, "", ""),
        auth=AuthContext("user", subject) if subject else AuthContext("unauthenticated"),
        former_id=former_id,
    )


BEFORE = request("former")
REPEATED = request("new-a", "former", "a")


class Worker:
    """Executes batches of commands on one partition."""

    def __init__(self) -> None:
        self._partition = empty_partition(INVENTORY)
        counts = dict.fromkeys(SERVICE_OF, 1)
        self._executor = Executor(INVENTORY, {0: self._partition}, counts, 1, phase=lambda: "closed")

    def batch(self, *requests: Metadata) -> list[Outcome]:
        """Their outcomes; then the batch is committed."""
        staged: Staged[Any] = Staged()
        for metadata in requests:
            about = {"partition": 0, "headers": write_headers(metadata)}
            record: Any = OneRecord((TOPIC, encode(TOPIC, COMMAND), SKU, about))
            self._executor.execute(record, staged, 1)
        for (_, key), entity in staged.entities.items():
            self._partition.publish(key, entity)
        for (_, key, _), recorded in staged.outcomes.items():
            self._partition.record(key, recorded)
        return [outcome for outcomes in staged.replies.values() for outcome in outcomes]


def test_a_repeat_across_the_upgrade_executes_once() -> None:
    worker = Worker()
    (first,) = worker.batch(BEFORE)
    (again,) = worker.batch(REPEATED)
    assert again == replace(first, command_id="new-a", replayed=True)


def test_a_repeat_in_the_same_batch_executes_once() -> None:
    first, again = Worker().batch(BEFORE, REPEATED)
    assert again == replace(first, command_id="new-a", replayed=True)


def test_a_repeat_of_the_repeat_executes_once() -> None:
    worker = Worker()
    worker.batch(REPEATED)
    (again,) = worker.batch(REPEATED)
    assert (again.replayed, again.version) == (True, 1)


def test_another_principal_s_key_is_another_command() -> None:
    worker = Worker()
    mine, other = worker.batch(REPEATED, request("new-b", "former", "b"))
    assert (mine.version, mine.replayed) == (1, False)
    assert (other.version, other.replayed) == (2, False)


def test_another_request_under_the_same_key_before_the_upgrade_does_not_count() -> None:
    """Its key was chosen by somebody else, or for something else: the principal's own request is executed."""
    worker = Worker()
    worker.batch(request("former", request_hash="another"))
    (own,) = worker.batch(REPEATED)
    assert (own.kind, own.version, own.replayed) == ("accepted", 2, False)


def test_an_own_key_is_not_used_twice() -> None:
    worker = Worker()
    worker.batch(REPEATED)
    (refused,) = worker.batch(REPEATED._replace(request_hash="another"))
    assert (refused.kind, refused.code) == ("refused", "idempotency_key_reused")
