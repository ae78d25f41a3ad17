"""Settling a slot: what its ids left undecided is aborted, and what is half committed is made whole.

While a cluster's only broker comes back from a crash, its partitions have no leader for a moment. Kafka 4 then takes
them for deleted ("these partitions are likely deleted already") and calls a decided transaction complete whose markers
it never wrote. Where the crash came between two markers of a commit, an outcome is visible, and acknowledged, whose
event is not: docs/adr/0042-half-committed-transactions.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import structlog
from confluent_kafka import Message, Producer, TopicPartition

from contracts.topics import TOPICS
from services.kernel.log.reader import (
    high_watermarks,
    last_stable_offsets,
    offsets_at,
    partitions_by_topic,
    read_to_end,
)
from services.kernel.log.transactions import Transactions, produce

MARGIN_MS = 1000  # between two records of one transaction
log = structlog.get_logger()


def settle_slot(
    transactions: Transactions,
    bootstrap: str,
    service: str,
    numbers: Sequence[int],
    partitions: Sequence[tuple[str, int]],
    consumed: tuple[list[TopicPartition], Any],
    epoch: int,
) -> None:
    """End what the slot's ids left behind in `partitions` (topic, partition) and in the `consumed` offsets of a group.

    The caller has fenced the ids, which alone write the events of the partitions `numbers`: nothing is under way.
    Events of another epoch than `epoch` are not written again, because their outcomes may be at another site. Where
    something is half committed, it waits for what others left undecided in the topics that are shared: whoever settles
    several slots one after the other ends that first. Raises `OwnershipLost`, `Aborted`, `NotCaughtUp` or
    KafkaException; it may be repeated.
    """
    logs = (TOPICS[service].events, TOPICS[service].answers)
    hidden = [record for topic in logs for record in _hidden(bootstrap, topic, numbers)]
    if not hidden:
        transactions.settle(partitions, *consumed)
        return
    log.warning("transactions_undecided", transactions=_names(hidden), records=len(hidden))
    # The others first: what they show is known before anything of the log is aborted for good.
    transactions.settle([at for at in partitions if at[0] not in logs], *consumed)
    committed = _visible_elsewhere(bootstrap, service, hidden)
    transactions.settle([at for at in partitions if at[0] in logs], [], None)
    visible = [record for topic in logs for record in _since(bootstrap, topic, hidden)]
    positions, committed = {*map(_position, visible)}, (committed | {*map(_transaction, visible)}) - {b""}
    absent = [
        record for record in hidden if _position(record) not in positions and _epoch(record) in (None, epoch)
    ]
    if lost := _with_predecessors(absent, committed):
        _write(transactions, lost)
        log.warning("transactions_completed", transactions=_names(lost), records=len(lost))


def _hidden(bootstrap: str, topic: str, numbers: Sequence[int]) -> Iterator[Message]:
    """What is behind the first undecided record of each partition; after most crashes nothing."""
    stable = last_stable_offsets(bootstrap, topic, list(numbers))
    ends = high_watermarks(bootstrap, topic, list(numbers))
    yield from read_to_end(bootstrap, topic, stable, ends, committed_only=False)


def _visible_elsewhere(bootstrap: str, service: str, hidden: Sequence[Message]) -> set[bytes]:
    """The transactions of the `hidden` records of which an outcome or a message can be seen."""
    candidates = {*map(_transaction, hidden)}
    since = min(record.timestamp()[1] for record in hidden) - MARGIN_MS
    existing = partitions_by_topic(bootstrap)  # a shop that has not moved yet has no inbox
    topics = {TOPICS[service].outcomes, *(own.inbox for own in TOPICS.values())} & existing.keys()
    return {
        name
        for topic in topics
        for record in read_to_end(bootstrap, topic, offsets_at(bootstrap, topic, since))
        if (name := _transaction(record)) in candidates
    }


def _since(bootstrap: str, topic: str, hidden: Sequence[Message]) -> Iterator[Message]:
    """What can be seen now from the first hidden record of each partition on."""
    starts: dict[int, int] = {}
    for record in hidden:
        if record.topic() == topic:
            starts.setdefault(record.partition(), record.offset())
    return read_to_end(bootstrap, topic, starts)


def _with_predecessors(absent: Sequence[Message], committed: Collection[bytes]) -> list[Message]:
    """The records of committed transactions, and the event before each, if that is absent, too: it was decided on."""
    chosen, before = list[Message](), dict[tuple[str, bytes | None], int]()
    for record in reversed(absent):
        version, stream = _number(record, "ce_sequence"), (record.topic(), record.key())
        decided_on = version is not None and before.get(stream) == version
        if decided_on or _transaction(record) in committed:
            chosen.append(record)
            if version is not None:
                before[stream] = version - 1
    return chosen[::-1]


def _write(transactions: Transactions, records: Sequence[Message]) -> None:
    def stage(producer: Producer) -> None:
        for record in records:
            about = {"partition": record.partition(), "headers": record.headers()}
            # its time too: by it a later repair finds the other records of the transaction
            about["timestamp"] = record.timestamp()[1]
            produce(producer, record.topic(), record.value(), record.key(), **about)

    transactions.run_again(stage)


def _position(record: Message) -> tuple[str, int, int]:
    return record.topic(), record.partition(), record.offset()


def _transaction(record: Message) -> bytes:
    """The id of the transaction, empty if there is none; an event's header also has its number in it."""
    return (dict(record.headers() or ()).get("ce_transaction") or b"").split(b"/")[0]


def _names(records: Sequence[Message]) -> list[str]:
    return sorted({_transaction(record).decode(errors="replace") for record in records})


def _epoch(record: Message) -> int | None:
    """None for a recorded outcome, which has no envelope."""
    return _number(record, "ce_epoch")


def _number(record: Message, header: str) -> int | None:
    text = dict(record.headers() or ()).get(header) or b""
    return int(text) if text.isdigit() else None
