"""What a slot executes: its partitions of the inbox and of the commands, each read by a consumer of its own.

With one consumer a backlog of one input would stand before the other's newest record.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Message, TopicPartition

from contracts.topics import TOPICS
from services.kernel.log.reader import commands_consumer, high_watermarks, once_settled, sound
from services.kernel.log.tail import LogTail, NotKnown
from services.kernel.log.transactions import Transactions

Positions: TypeAlias = Mapping[str, dict[int, int]]
"""The next offset, by topic and partition."""

PAUSE_SECONDS = 0.005  # how long a record of the inbox may wait while nothing else comes
COMMITTED_SECONDS = 60
TAIL_SECONDS = 2.0


class Inputs:
    """`begin` once, then `take` again and again; `go_back` after an abort."""

    def __init__(self, bootstrap: str, service: str) -> None:
        self.topics, group = TOPICS[service].inputs, f"{service}-workers"
        self._bootstrap, self._tail = bootstrap, LogTail(bootstrap)
        self._waiting: dict[int, int] = {}
        self._inbox, self._commands = (commands_consumer(bootstrap, group) for _ in self.topics)
        self._consumers: Mapping[str, Consumer] = dict(
            zip(self.topics, (self._inbox, self._commands), strict=True)
        )

    @property
    def group(self) -> Any:
        """The consumer group, as a transaction wants it."""
        return self._commands.consumer_group_metadata()

    def committed(self, numbers: Collection[int]) -> dict[str, dict[int, int]]:
        """Where the last owner's last commit ended, below zero where nobody has committed yet.

        Returns only when pending offsets are decided.
        """
        places = [TopicPartition(topic, number) for topic in self.topics for number in numbers]
        found: dict[str, dict[int, int]] = {topic: {} for topic in self.topics}
        for at in once_settled(
            lambda: self._commands.committed(places, COMMITTED_SECONDS), COMMITTED_SECONDS
        ):
            found[at.topic][at.partition] = at.offset
        return found

    def begin(self, committed: Positions, transactions: Transactions) -> dict[str, dict[int, int]]:
        """Go on where the last owner's commit ended; returns these positions.

        A partition of which nothing was committed gets its first commit now: it says that the partition's
        owner reads this input. Raises `OwnershipLost` or `Aborted`.
        """
        new = [
            TopicPartition(topic, number, 0)
            for topic, own in committed.items()
            for number, offset in own.items()
            if offset < 0
        ]
        if new:
            transactions.run_again(lambda _: None, new, self.group)
        begin = {
            topic: {number: max(0, offset) for number, offset in own.items()}
            for topic, own in committed.items()
        }
        for topic, own in begin.items():
            self._consumers[topic].assign([TopicPartition(topic, *at) for at in own.items()])
        return begin

    def take(self, most: int, seconds: float) -> list[Message]:
        """What is there, the inbox first; waits up to `seconds` for the first record.

        Each input has half of `most`, and what the other leaves of its half. Raises KafkaException.
        """
        until = time.monotonic() + seconds
        while not (records := self._there(most, [])):
            left = until - time.monotonic()
            if left <= 0:
                return []
            if first := self._commands.consume(1, min(left, PAUSE_SECONDS)):
                return self._there(most, first)
        return records

    def gather(self, most: int, seconds: float) -> list[Message]:
        """What comes within `seconds`, or the first `most` records of it. Raises KafkaException."""
        late: list[Message] = self._commands.consume(most, seconds)
        return sound([*self._inbox.consume(most - len(late), 0), *late] if len(late) < most else late)

    def go_back(self, records: Iterable[Message]) -> None:
        """Read these again: from the first of each partition on."""
        first: dict[tuple[str, int], int] = {}
        for record in records:
            first.setdefault((record.topic(), record.partition()), record.offset())
        for (topic, number), offset in first.items():
            self._consumers[topic].seek(TopicPartition(topic, number, offset))

    def commands_read(self, number: int, executed: int) -> bool:
        """Whether the commands are executed that stood in a partition when this was first asked.

        Once it is so, the next call asks about those that stand there then. `executed` is the next offset.
        """
        topic = self.topics[1]
        if number not in self._waiting:
            self._waiting[number] = high_watermarks(self._bootstrap, topic, [number])[number]
        place = ((topic, number), executed)
        try:  # no position reaches the end of a partition that markers close
            read = (
                executed >= self._waiting[number]
                or not self._tail.behind([place], TAIL_SECONDS)[place].records
            )
        except NotKnown:
            read = False
        if read:
            del self._waiting[number]
        return read

    def close(self) -> None:
        self._tail.close()
        for consumer in self._consumers.values():
            consumer.close()

    def _there(self, most: int, commands: list[Message]) -> list[Message]:
        inbox: list[Message] = self._inbox.consume(most // 2, 0)
        if room := most - len(inbox) - len(commands):
            commands = commands + self._commands.consume(room, 0)
        if room := most - len(inbox) - len(commands):
            inbox = inbox + self._inbox.consume(room, 0)
        return sound([*inbox, *commands])
