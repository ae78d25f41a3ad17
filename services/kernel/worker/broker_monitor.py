"""Ends a worker whose transactional call hangs, or whose broker was away.

librdkafka ignores the timeout of `send_offsets_to_transaction` (its issue 5456), and Python cannot cancel a
call. A broker that crashes can lose the markers of a decided transaction (ADR 9); only a start settles them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaException

from services.kernel.log import clients
from services.kernel.log.transactions import OwnershipLost, Transactions

LOOK_SECONDS = 0.25
ANSWER_SECONDS = 1.0
AWAY_SECONDS = 3.0
# A call that still hangs so long after the broker's return does not end by itself.
BEYOND_SECONDS = 3.0


class Sight(NamedTuple):
    """What an independent client saw, in monotonic seconds: since when the broker has not responded (None: it
    responds), and when it last came back."""

    away_since: float | None = None
    back_at: float = float("-inf")

    def after(self, reachable: bool, now: float) -> Sight:
        """With one more look. A process that was itself frozen saw no more than one look's time."""
        if reachable:
            return self if self.away_since is None else Sight(None, now)
        return self if self.away_since is not None else Sight(now - ANSWER_SECONDS, self.back_at)

    def away_within(self, seconds: float, now: float) -> bool:
        """Whether the broker was away in the last `seconds`."""
        return self.away_since is not None or now - self.back_at <= seconds


class BrokerSight:
    """An independent client, in a thread of its own once it follows; `sight` is what it saw."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = clients.admin(bootstrap)
        self.sight = Sight()

    def look(self) -> Sight:
        """One look, of up to `ANSWER_SECONDS`. A cluster responds when one of its brokers does."""
        try:
            reachable = bool(self._admin.list_topics("site.control", ANSWER_SECONDS).brokers)
        except KafkaException:
            reachable = False
        self.sight = self.sight.after(reachable, time.monotonic())
        return self.sight

    def follow(self, seen: Callable[[Sight], None] = lambda _: None) -> None:
        """Look again and again, for the process's life."""

        def run() -> None:
            while True:
                seen(self.look())
                time.sleep(LOOK_SECONDS)

        threading.Thread(target=run, name="broker sight", daemon=True).start()


def why_end(calling_since: float | None, sight: Sight, now: float, transaction_seconds: float) -> str:
    """Why a slot's owner must end, or nothing.

    `calling_since`: when its transactional call began, None between calls.
    """
    if sight.away_since is not None and now - sight.away_since > AWAY_SECONDS:
        return f"the broker has not responded for {AWAY_SECONDS:.0f} s"
    if calling_since is None:
        return ""
    if now - calling_since > transaction_seconds:
        return f"a transactional call takes longer than {transaction_seconds:g} s"
    if sight.back_at >= calling_since and now - sight.back_at > BEYOND_SECONDS:
        return f"a transactional call hangs {BEYOND_SECONDS:.0f} s after the broker's return"
    return ""


def end_when_stuck(
    bootstrap: str, transactions: Transactions, seconds: float, end: Callable[[BaseException], None]
) -> None:
    """Watch a slot's owner from now on: call `end`, from another thread, when it must end.

    `seconds`: the timeout of its transactions.
    """

    def seen(sight: Sight) -> None:
        if reason := why_end(transactions.calling_since, sight, time.monotonic(), seconds):
            end(OwnershipLost(reason))

    BrokerSight(bootstrap).follow(seen)
