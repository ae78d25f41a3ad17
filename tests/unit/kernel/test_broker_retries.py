"""Requests are repeated while partitions and coordinators move, and only then."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from services.kernel.log.reader import once_settled

MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # a leader that was elected a moment ago
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class Broker:
    """Fails with `code` for `times` calls, then returns."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times, self.calls = code, times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise KafkaException(KafkaError(self.code))
        return "a response"


@pytest.mark.parametrize("code", MOVING)
def test_a_moving_broker_is_called_again(code: int) -> None:
    broker = Broker(code, times=2)
    assert once_settled(broker, 10) == "a response"
    assert broker.calls == 3


@pytest.mark.parametrize("code", MOVING)
def test_retries_end(code: int) -> None:
    with pytest.raises(KafkaException):
        once_settled(Broker(code, times=1000), 0.1)


def test_other_errors_are_raised_at_once() -> None:
    broker = Broker(KafkaError.UNKNOWN_TOPIC_OR_PART, times=1)
    with pytest.raises(KafkaException):
        once_settled(broker, 10)
    assert broker.calls == 1
