"""When a slot's owner must end: a pure rule of when its call began and what an independent client saw."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from services.kernel.log.transactions import OwnershipLost, Transactions
from services.kernel.worker.broker_monitor import Sight, why_end

TIMEOUT = 10.0
ALWAYS_THERE = Sight()

NEVER = "ends never"
AWAY, SLOW, HANGS = "has not responded", "takes longer", "hangs"


@pytest.mark.parametrize(
    ("began", "sight", "now", "expected"),
    [
        (None, ALWAYS_THERE, 1000.0, NEVER),
        (100.0, ALWAYS_THERE, 109.9, NEVER),
        (100.0, ALWAYS_THERE, 110.1, SLOW),
        # away: a call or none, the owner ends once it is no blip, for it must settle
        (None, Sight(away_since=100.0), 102.9, NEVER),
        (None, Sight(away_since=100.0), 103.1, AWAY),
        (99.0, Sight(away_since=100.0), 103.1, AWAY),
        # back after a blip: a call that began before has 3 s to come to its end
        (99.0, Sight(back_at=102.0), 104.9, NEVER),
        (99.0, Sight(back_at=102.0), 105.1, HANGS),
        (None, Sight(back_at=102.0), 105.1, NEVER),
        # never longer than the transaction, however late the broker came back
        (92.0, Sight(back_at=100.0), 102.1, SLOW),
        # a call that began after the return has the whole time of a transaction
        (103.0, Sight(back_at=102.0), 112.9, NEVER),
        (103.0, Sight(back_at=102.0), 113.1, SLOW),
    ],
)
def test_the_owner_ends_when_its_call_cannot_end(
    began: float | None, sight: Sight, now: float, expected: str
) -> None:
    reason = why_end(began, sight, now, TIMEOUT)
    assert (expected in reason) if expected != NEVER else reason == ""


def test_looks_become_a_sight() -> None:
    seen = [ALWAYS_THERE]
    for responded, now in [(True, 10.0), (False, 12.0), (False, 13.0), (True, 14.0), (True, 15.0)]:
        seen.append(seen[-1].after(responded, now))
    away = Sight(away_since=11.0)  # the look that failed took one second
    assert seen[1:] == [ALWAYS_THERE, away, away, Sight(back_at=14.0), Sight(back_at=14.0)]


def test_away_lately_is_away_now_or_back_for_less_than_that() -> None:
    assert not ALWAYS_THERE.away_within(10, 5.0)
    assert Sight(away_since=1.0).away_within(10, 500.0)
    assert Sight(back_at=20.0).away_within(10, 29.9)
    assert not Sight(back_at=20.0).away_within(10, 30.1)


class Broken:
    """A producer of which one call fails as librdkafka's does where the transaction can only be aborted."""

    def __init__(self, call: str) -> None:
        self._call = call
        self.aborted = False

    def _fail(self, call: str) -> None:
        if call == self._call:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, "delivery timed out", txn_requires_abort=True)
            )

    def begin_transaction(self) -> None:
        self._fail("begin_transaction")

    def produce(self, *_: object, **__: object) -> None:
        pass

    def send_offsets_to_transaction(self, *_: object) -> None:
        self._fail("send_offsets_to_transaction")

    def flush(self, _: float) -> int:
        return 3 if self._call == "flush" else 0

    def abort_transaction(self, _: float) -> None:
        self.aborted = True


@pytest.mark.parametrize("call", ["begin_transaction", "send_offsets_to_transaction", "flush"])
def test_what_cannot_be_settled_is_a_lost_ownership(call: str) -> None:
    transactions, broken = Transactions("127.0.0.1:1", [], 10_000), Broken(call)
    transactions._producers = [broken]
    with pytest.raises(OwnershipLost, match="not settled"):
        transactions.settle([("t", 0)], [TopicPartition("t", 0, 0)], None)
    assert transactions.calling_since is None


def test_a_call_is_known_while_it_lasts() -> None:
    transactions, broken = Transactions("127.0.0.1:1", [], 10_000), Broken("")
    seen: list[float | None] = []
    broken.abort_transaction = lambda _: seen.append(transactions.calling_since)  # type: ignore[method-assign]
    transactions._producers = [broken]
    transactions.settle([("t", 0)], [], None)
    assert [since is not None for since in seen] == [True]
    assert transactions.calling_since is None
