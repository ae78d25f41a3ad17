"""A log for the checker's tests: events, and the commands and outcomes that go with them."""

from __future__ import annotations

from typing import Any

from contracts.inventory.commands import IssueStock, ReleaseStock, ReserveStock, ReturnStock
from contracts.kernel.records import Answer, Outcome, OutcomeBatch
from contracts.order.events import OrderPlaced, OrderRejected, OrderReturned, OrderShipped
from infra.lab.checker.evidence import Recorded, Sent
from services.kernel.record.envelope import Metadata, ReplyAddress, partition_of


class Log:
    """Writes events as workers would, each append in one transaction, and everything that goes with them.

    A command that nobody sent yet comes from a client. An order's commands are called `<step>-<order>-<SKU>`;
    the outcome of one is the command `outcome-<its id>` to the order.
    """

    def __init__(self) -> None:
        self.events: list[Recorded] = []
        self.sent: list[Sent] = []
        self._versions: dict[str, int] = {}

    def append(self, topic: str, key: str, cause: str, *events: Any) -> Log:
        receiver = self._command(topic, key, cause)
        for index, event in enumerate(events):
            version = self._versions[key] = self._versions.get(key, 0) + 1
            about = metadata(f"{key}-{version}", event.TYPE, key, cause)
            about = about._replace(version=version, transaction=f"{cause}/{index}/{len(events)}")
            partition = partition_of(key, 2)
            self.events.append(Recorded(topic, partition, 2, len(self.events), key, about, event))
            for command in called_for(event):
                self._send(command, about)
        ids = tuple(f"{key}-{self._versions[key] - n}" for n in range(len(events)))
        self._reply(topic, receiver, outcome(cause, key, event_ids=ids))
        return self

    def refuse(self, topic: str, key: str, cause: str, code: str) -> None:
        refused = outcome(cause, key, kind="refused", code=code)
        self._reply(topic, self._command(topic, key, cause), refused)
        self.sent.append(Sent(topic.replace("events", "answers"), key, cause, None, Answer(refused, 0)))

    def _command(self, topic: str, key: str, cause: str) -> str:
        """The receiver of its outcome: an order, or a client (empty)."""
        for record in self.sent:
            if record.metadata is not None and record.metadata.id == cause:
                return record.metadata.reply_to.key if record.metadata.reply_to else ""
        about = metadata(cause, "any", key, cause)._replace(reply_to=ReplyAddress("outcomes", 0, "", ""))
        self.sent.append(Sent(topic.replace("events", "commands"), key, "", about, None))
        return ""

    def _send(self, command: Any, event: Metadata) -> None:
        step = type(command).__name__.removesuffix("Stock")
        name = f"{step}-{command.order_id}-{command.sku}".lower()
        about = metadata(name, command.TYPE, command.sku, event.id)
        about = about._replace(reply_to=ReplyAddress("order.commands", None, "", command.order_id))
        within = event.transaction.partition("/")[0]
        self.sent.append(Sent("inventory.commands", command.sku, within, about, command))

    def _reply(self, topic: str, receiver: str, outcome: Outcome) -> None:
        name, batch = f"told-{outcome.command_id}", OutcomeBatch((outcome,))
        about = metadata(name, batch.TYPE, receiver, name) if receiver else None
        destination = "order.commands" if receiver else topic.replace("events", "outcomes")
        self.sent.append(Sent(destination, receiver, outcome.command_id, about, batch))


def metadata(name: str, kind: str, key: str, cause: str) -> Metadata:
    return Metadata(name, kind, key, "test", 0, correlation_id=key, causation_id=cause, epoch=1)


def outcome(command_id: str, subject: str, **changes: Any) -> Outcome:
    fields = {"kind": "accepted", "version": 1, "event_ids": (), "status": "", "code": "", "reason": ""}
    about = {"command_id": command_id, "command_type": "any", "subject": subject, "tag": ""}
    return Outcome(**about, **fields | changes, request_hash="h", replayed=False)  # type: ignore[arg-type]


def called_for(event: Any) -> list[Any]:
    """The commands that an order sends with an event."""
    match event:
        case OrderPlaced(order_id=order_id, lines=lines):
            return [ReserveStock(line.sku, order_id, line.quantity, 0) for line in lines]
        case OrderRejected(order_id=order_id, release=skus):
            return [ReleaseStock(sku, order_id, 0) for sku in skus]
        case OrderShipped(order_id=order_id, issue=skus):
            return [IssueStock(sku, order_id, 0) for sku in skus]
        case OrderReturned(order_id=order_id, lines=returned):
            return [ReturnStock(line.sku, order_id, 1, line.quantity, 0) for line in returned]
        case _:
            return []
