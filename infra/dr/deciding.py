"""What was decided about lost commands: records of `site.reconciliation`, and sending a command again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from contracts.kernel.records import LossReissued, LossWrittenOff, Outcome, OutcomeBatch
from contracts.topics import TOPICS
from infra.base.errors import DaybookError
from infra.dr.losses import LostRequest
from infra.log.event_log import EVENT_TOPICS, event_in_any_epoch
from services.kernel.log import clients
from services.kernel.log.reader import high_watermarks, partitions_of, read_to_end
from services.kernel.record.codec import decode, encode
from services.kernel.record.envelope import ReplyAddress

TOPIC = "site.reconciliation"
OUTCOME_SECONDS = 60.0
DELIVERY_SECONDS = 30

Decision: TypeAlias = LossReissued | LossWrittenOff


class NoOutcome(DaybookError, TimeoutError):
    """A command that was sent again is not answered; it may still be executed, once."""


def decisions(bootstrap: str) -> dict[str, Decision]:
    """The newest decision about each command, by its id."""
    found: dict[str, Decision] = {}
    for record in read_to_end(bootstrap, TOPIC, {0: 0}):
        decision = decode(record.value())
        found[decision.command_id] = decision
    return found


class Desk:
    """Where an operator decides: sends commands, hears outcomes, follows streams, writes decisions down.

    `streams` are the versions of the streams that lost events, by (topic, subject), where `continued`
    (`topic/partition` → offset) begins. Use it in a `with`.
    """

    def __init__(
        self, bootstrap: str, streams: Mapping[tuple[str, str], int], continued: Mapping[str, int]
    ) -> None:
        self._bootstrap = bootstrap
        self._versions = dict(streams)
        self._outcomes: dict[str, Outcome] = {}
        self._producer = clients.writer(
            bootstrap, {"message.timeout.ms": DELIVERY_SECONDS * 1000, "log_level": 3}
        )
        self._consumer = clients.follower(bootstrap, options={"fetch.wait.max.ms": 50, "log_level": 3})
        self._replies = {service: self._reply_to(service) for service in TOPICS}
        self._partitions = {topic: len(partitions_of(bootstrap, topic)) for topic in EVENT_TOPICS}
        self._consumer.assign([*self._ends(self._replies.values()), *_places(continued)])

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def send(self, service: str, request: LostRequest, epoch: int) -> Outcome:
        """The command as it was, in this epoch, and what became of it. Raises `NoOutcome`."""
        ours = {"ce_epoch": b"%d" % epoch, "ce_replyto": str(self._replies[service]).encode()}
        headers = [(name, ours.pop(name, value)) for name, value in request.headers]
        command_id = dict(request.headers)["ce_id"].decode()
        self._outcomes.pop(command_id, None)
        self._deliver(request.topic, request.key, request.value, [*headers, *ours.items()])
        until = time.monotonic() + OUTCOME_SECONDS
        while command_id not in self._outcomes:
            if time.monotonic() > until:
                raise NoOutcome(f"{command_id} is not answered within {OUTCOME_SECONDS:.0f} s")
            self._listen()
        return self._outcomes[command_id]

    def await_version(self, topic: str, subject: str, version: int, seconds: float) -> bool:
        """Wait until the stream stands at `version` or beyond; False when it does not in time."""
        until = time.monotonic() + seconds
        while self._versions.get((topic, subject), version) < version:
            if time.monotonic() > until:
                return False
            self._listen()
        return True

    def write(self, decisions: Sequence[Decision]) -> None:
        """Raises TimeoutError where the log does not take them."""
        for decision in decisions:
            self._deliver(TOPIC, decision.command_id, encode(TOPIC, decision), [])

    def _deliver(self, topic: str, key: str, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        self._producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
        if self._producer.flush(DELIVERY_SECONDS + 1) or failures:
            raise TimeoutError(
                f"{topic} did not take {key}: {failures[0].str() if failures else 'no answer'}"
            )

    def _listen(self) -> None:
        for record in self._consumer.consume(500, 0.05):
            if (error := record.error()) is not None:
                if not error.retriable():
                    raise KafkaException(error)
                continue
            self._hear(record)

    def _hear(self, record: Message) -> None:
        if record.topic() not in self._partitions:
            match decode(record.value()):
                case OutcomeBatch(outcomes=outcomes):
                    self._outcomes.update((outcome.command_id, outcome) for outcome in outcomes)
            return
        metadata = event_in_any_epoch(record, self._partitions[record.topic()])
        if metadata is not None and (stream := (record.topic(), metadata.subject)) in self._versions:
            self._versions[stream] = max(self._versions[stream], metadata.version)

    def _reply_to(self, service: str) -> ReplyAddress:
        """The last partition of the outcomes: no replica of the API listens there."""
        topic = TOPICS[service].outcomes
        return ReplyAddress(topic, partitions_of(self._bootstrap, topic)[-1], "", "")

    def _ends(self, replies: Iterable[ReplyAddress]) -> list[TopicPartition]:
        places = [(reply.topic, reply.partition or 0) for reply in replies]
        return [
            TopicPartition(topic, number, high_watermarks(self._bootstrap, topic, [number])[number])
            for topic, number in places
        ]


def _places(continued: Mapping[str, int]) -> list[TopicPartition]:
    split = [(place.rpartition("/"), offset) for place, offset in continued.items()]
    return [TopicPartition(topic, int(number), offset) for (topic, _, number), offset in split]
