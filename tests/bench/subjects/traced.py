"""A part of a service that notes when each command passes: `python -m … MODULE api|worker FILE`.

It wraps functions of the production code, which knows nothing of it, and writes FILE as JSON when the part ends.
All times are `time.monotonic()`: one clock for all processes of a machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

from confluent_kafka import Producer

Stamps = dict[str, float]


class ApiTrace:
    """The stamps of each order: request, sent (to the producer), acknowledged (by the broker), outcome (read),
    response."""

    def __init__(self) -> None:
        self._orders: dict[str, Stamps] = {}
        self._request: ContextVar[Stamps] = ContextVar("request")

    def install(self) -> None:
        from services.edge.gateway import Gateway
        from services.edge.middleware import CorrelationMiddleware
        from services.kernel.log import clients

        responding, sending, receiving = (
            CorrelationMiddleware.__call__,
            Gateway._send_and_wait,
            Gateway._receive,
        )

        async def respond(middleware: Any, scope: Any, receive: Any, send: Any) -> None:
            stamps: Stamps = {"request": monotonic()}
            self._request.set(stamps)
            await responding(middleware, scope, receive, send)
            stamps["response"] = monotonic()

        def send(gateway: Any, key: Any, entity_id: str, *more: Any) -> Awaitable[Any]:
            self._orders[entity_id] = self._request.get()
            self._orders[entity_id]["sent"] = monotonic()
            return sending(gateway, key, entity_id, *more)

        def receive(gateway: Any, outcomes: Any) -> None:
            now = monotonic()
            for outcome in outcomes:
                if stamps := self._orders.get(outcome.subject):
                    stamps["outcome"] = now
            receiving(gateway, outcomes)

        patch(CorrelationMiddleware, "__call__", respond)
        patch(Gateway, "_send_and_wait", send)
        patch(Gateway, "_receive", receive)
        patch(clients, "Producer", self._producer())

    def _producer(self) -> type[Producer]:
        orders = self._orders

        class TracedProducer(Producer):  # type: ignore[misc] # the extension has no types
            """Reports every delivery, as soon as it is known."""

            def __init__(self, options: dict[str, Any]) -> None:
                super().__init__(options | {"delivery.report.only.error": False})
                Thread(target=self._serve, daemon=True).start()

            def _serve(self) -> None:
                while True:
                    self.poll(1)

            def produce(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> None:
                delivered = more.pop("on_delivery")

                def report(error: Any, record: Any) -> None:
                    if error is None and key in orders:
                        orders[key]["acknowledged"] = monotonic()
                    delivered(error, record)

                super().produce(topic, value, key, on_delivery=report, **more)

        return TracedProducer

    def content(self) -> Any:
        return {"orders": self._orders}


class WorkerTrace:
    """The spans of the loop: `reading` (waiting for records), `steps` of transactions; and when each key was read."""

    def __init__(self) -> None:
        self._read: dict[str, float] = {}
        self._spans: list[tuple[str, float, float]] = []

    def install(self) -> None:
        from services.kernel.log.transactions import Transactions
        from services.kernel.worker.command_loop import CommandLoop
        from services.kernel.worker.slot import Inputs

        def reading(function: Callable[..., Any], name: str) -> Callable[..., Any]:
            def read(*arguments: Any) -> Any:
                began = monotonic()
                records = function(*arguments)
                ended = monotonic()
                self._spans.append((name, began, ended))
                for record in records:
                    self._read[(record.key() or b"").decode()] = ended
                return records

            return read

        calling = Transactions._call

        def call(transactions: Any, step: Callable[..., Any], *arguments: Any) -> Any:
            began = monotonic()
            try:
                return calling(transactions, step, *arguments)
            finally:
                self._spans.append((step.__name__, began, monotonic()))

        patch(Inputs, "take", reading(Inputs.take, "take"))
        patch(Inputs, "gather", reading(Inputs.gather, "gather"))
        patch(Transactions, "_call", call)
        patch(CommandLoop, "_commit", self._spanned(CommandLoop._commit, "commit"))

    def _spanned(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def spanned(*arguments: Any) -> Any:
            began = monotonic()
            function(*arguments)
            self._spans.append((name, began, monotonic()))

        return spanned

    def content(self) -> Any:
        return {"read": self._read, "spans": self._spans}


def patch(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


def main(module: str, part: str, file: str) -> None:
    trace = ApiTrace() if part == "api" else WorkerTrace()
    trace.install()
    service = getattr(import_module(module), module.split(".")[1].upper())
    try:
        service.run_api() if part == "api" else service.run_worker()
    finally:
        Path(file).write_text(json.dumps(trace.content()))


if __name__ == "__main__":
    main(*sys.argv[1:])
