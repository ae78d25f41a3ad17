"""What a broker says while partitions and coordinators move is asked again; anything else is not."""

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
    """Says `code` some times, then answers; `asked` counts."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times, self.asked = code, times, 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.times:
            raise KafkaException(KafkaError(self.code))
        return "an answer"


@pytest.mark.parametrize("code", MOVING)
def test_what_moves_is_asked_again(code: int) -> None:
    broker = Broker(code, times=2)
    assert once_settled(broker, 10) == "an answer"
    assert broker.asked == 3


@pytest.mark.parametrize("code", MOVING)
def test_not_for_ever(code: int) -> None:
    with pytest.raises(KafkaException):
        once_settled(Broker(code, times=1000), 0.1)


def test_what_does_not_move_is_raised_at_once() -> None:
    broker = Broker(KafkaError.UNKNOWN_TOPIC_OR_PART, times=1)
    with pytest.raises(KafkaException):
        once_settled(broker, 10)
    assert broker.asked == 1
