"""No response of a write API contradicts its document, whatever becomes of the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from contracts.inventory.commands import AdjustStock, ReceiveStock
from contracts.kernel.records import Outcome, SiteRole
from contracts.order.commands import CancelOrder, PlaceOrder, ReturnLines, ShipOrder
from services.edge.problems import LogUnavailable, OutcomeUnknown, Overloaded, SiteUnavailable
from services.inventory.domain.decider import StockRefusal
from services.kernel.log.control import Control
from services.kernel.record.envelope import Metadata
from services.order.api import CANCELLING, PLACING, RETURNING, SHIPPING
from services.order.domain.decider import OrderRefusal
from tests.contract.conformance import started, statuses
from tests.contract.test_openapi import APPS

REFUSALS: dict[str, Any] = {
    PlaceOrder.TYPE: PLACING,
    CancelOrder.TYPE: (OrderRefusal.ORDER_NOT_FOUND, *CANCELLING),
    ShipOrder.TYPE: (OrderRefusal.ORDER_NOT_FOUND, *SHIPPING),
    ReturnLines.TYPE: (OrderRefusal.ORDER_NOT_FOUND, *RETURNING),
    ReceiveStock.TYPE: (StockRefusal.BAD_QUANTITY,),
    AdjustStock.TYPE: (StockRefusal.BELOW_RESERVED,),
}
PASSIVE = Control(role=SiteRole("away", "passive", 2))
UNANSWERED = (
    Overloaded("4096 commands are waiting"),
    OutcomeUnknown("no outcome after 10 s"),
    LogUnavailable("the log is not reachable"),
    SiteUnavailable(PASSIVE, "http://127.0.0.1:27401"),
)


class Gateway:
    """Reaches no broker: `script` makes up the outcomes of each type of command, in turn."""

    epoch = 1

    def __init__(self, script: Callable[[str, int], dict[str, Any]]) -> None:
        self._script, self._sent = script, Counter[str]()

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def not_ready(self) -> str | None: ...

    async def send(self, command: Any, request: Metadata) -> Outcome:
        number = self._sent[command.TYPE]
        self._sent[command.TYPE] += 1
        fields = {
            "command_id": request.id,
            "command_type": command.TYPE,
            "subject": request.subject,
            "tag": "",
            "kind": "accepted",
            "version": 3,
            "event_ids": ("01940000-0000-7000-8000-000000000000",),
            "status": "placed",
            "code": "",
            "reason": "",
            "request_hash": "",
            "replayed": number % 2 == 1,
        }
        return Outcome(**fields | self._script(command.TYPE, number))


def decided(command: str, number: int) -> dict[str, Any]:
    """An outcome that a worker decides."""
    refusals = [
        {"kind": "refused", "code": refusal.name.lower(), "reason": refusal.value}
        for refusal in REFUSALS[command]
    ]
    reused = {"kind": "refused", "code": "idempotency_key_reused", "reason": "the key is another request's"}
    conflict = {"kind": "conflict", "reason": "it is at version 3"}
    outcomes = [{}, refusals[-1], conflict, {"event_ids": ()}, reused, *refusals[:-1]]
    return outcomes[number % len(outcomes)]


def failed(_: str, number: int) -> dict[str, Any]:
    """No outcome, or one that needs an operator."""
    codes = ("undecodable", "stream_forked")
    number %= len(codes) + len(UNANSWERED)
    if number < len(codes):
        return {"kind": "failed", "code": codes[number], "reason": "it failed"}
    raise UNANSWERED[number - len(codes)]


class Tail:
    """Nothing settles."""

    async def watch(self, _: str) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture(params=[decided, failed])
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("services.edge.writes.Gateway", lambda *_, **__: Gateway(request.param))
    monkeypatch.setattr("services.order.api.SettlementTail", lambda *_: Tail())
    return request.param


@pytest.mark.parametrize("name", ["order", "inventory"])
def test_no_response_to_a_write_contradicts_the_document(name: str, script: Any) -> None:
    with started(APPS[name]()) as schema:
        for operation, seen in statuses(schema, failing=script is failed).items():
            expected = {500, 503} if script is failed else {200, 409, 412}
            assert seen >= {422} | expected, operation
