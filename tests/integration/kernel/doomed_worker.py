"""A worker that a signal hits at a chosen step of a chosen transaction: `python -m … SERVICE STEP NTH
SIGNAL`.

The real worker with the real producers; only their methods are wrapped. STEP is
`<method>:before|after|during`. An order worker is hit where a transaction with commands to inventory ends:
only such a one can be torn between an event and its commands.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Producer

from services.kernel.log import transactions
from services.service import Service

METHODS = ("begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")


class Doomed:
    """A producer whose NTH call of one method (counted over all producers of the process) brings the signal.

    The ends of transactions without a record (for the topic `torn_from`, if one is named) are not counted.
    """

    calls = 0

    def __init__(self, producer: Producer, step: str, nth: int, number: int, torn_from: str) -> None:
        self._producer, self._nth, self._number = producer, nth, number
        self._method, _, self._when = step.partition(":")
        self._torn_from, self._counted = torn_from, False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._producer, name)
        return partial(self._call, name, method) if name in METHODS else method

    def _call(self, name: str, method: Callable[..., Any], *args: Any, **more: Any) -> Any:
        if name == "begin_transaction":
            self._counted = False
        if name == "produce" and self._torn_from in ("", args[0]):
            self._counted = True
        due = self._due(name)
        if due and self._when == "before":
            self._strike()
        if due and self._when == "during":
            threading.Thread(target=self._strike_soon, daemon=True).start()
        result = method(*args, **more)
        if due and self._when == "after":
            if name == "produce":
                self._producer.flush(5)
            self._strike()
        return result

    def _due(self, name: str) -> bool:
        if name != self._method or (name.startswith(("send", "commit")) and not self._counted):
            return False
        Doomed.calls += 1
        return Doomed.calls == self._nth

    def _strike(self) -> None:
        os.kill(os.getpid(), self._number)

    def _strike_soon(self) -> None:
        time.sleep(random.random() * 0.008)
        self._strike()


def main() -> int:
    service, step, nth, name = sys.argv[1:5]
    torn_from = "inventory.inbox" if service == "order" else ""
    real, number = transactions.transactional_producer, signal.Signals[name]

    def doomed(bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
        producer = real(bootstrap, transactional_id, timeout_ms)
        if transactional_id.endswith("snapshots"):
            return producer
        return Doomed(producer, step, int(nth), number, torn_from)

    transactions.transactional_producer = doomed
    declared: Service[Any, Any, Any] = getattr(
        importlib.import_module(f"services.{service}.service"), service.upper()
    )
    return declared.run_worker()


if __name__ == "__main__":
    raise SystemExit(main())
