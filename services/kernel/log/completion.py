"""Settling a slot: what its ids left undecided is aborted, and what is half committed is made whole.

While a cluster's only broker comes back from a crash, Kafka 4 may call a decided transaction complete without some of
its markers. So an outcome may be visible, and acknowledged, whose event is not: see
docs/adr/0042-half-committed-transactions.md.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import structlog
from confluent_kafka import Message, Producer, TopicPartition

from contracts.topics import TOPICS
from services.kernel.log.reader import last_stable_offsets, offsets_at, partitions_by_topic, read_to_end
from services.kernel.log.transactions import Transactions, produce

MARGIN_MS = 1000  # between two records of one transaction
Ends: TypeAlias = Mapping[str, Mapping[int, int]]  # by topic and partition
log = structlog.get_logger()


class Unsettled(NamedTuple):
    """A slot whose ids were fenced; they alone write the events of the partitions `numbers`. They may have written
    `partitions` (topic, partition), and consumed the `offsets` of `group`."""

    transactions: Transactions
    service: str
    numbers: list[int]
    partitions: Sequence[tuple[str, int]]
    offsets: list[TopicPartition]
    group: Any

    @property
    def logs(self) -> tuple[str, str]:
        """The topics that nobody else writes."""
        return TOPICS[self.service].events, TOPICS[self.service].answers


def slot_partitions(numbers: Iterable[int], slot: int, slots: int) -> list[int]:
    """Which of a service's partitions a slot owns, of so many slots."""
    return [number for number in numbers if number % slots == slot]


def settle(bootstrap: str, slots: Sequence[Unsettled], epoch: int) -> None:
    """End what the ids of these slots left behind, and write again what others have seen of it.

    Not events of another epoch than `epoch`: their outcomes may be at another site. Waits, where something is half
    committed, for what further slots left undecided in shared topics. Raises `OwnershipLost`, `Aborted`, `NotCaughtUp`
    or KafkaException; it may be repeated.
    """
    half_committed = []
    for slot in slots:
        stable: Ends = {topic: last_stable_offsets(bootstrap, topic, slot.numbers) for topic in slot.logs}
        hidden = _read(bootstrap, stable, committed_only=False)
        # What the shared topics show is to be known before anything of the log is aborted for good.
        first = [at for at in slot.partitions if not hidden or at[0] not in slot.logs]
        slot.transactions.settle(first, slot.offsets, slot.group)
        if hidden:
            log.warning("transactions_undecided", transactions=_names(hidden), records=len(hidden))
            half_committed.append((slot, stable, hidden))
    for slot, stable, hidden in half_committed:
        _complete(bootstrap, slot, stable, hidden, epoch)


def _complete(bootstrap: str, slot: Unsettled, stable: Ends, hidden: list[Message], epoch: int) -> None:
    committed = _visible_elsewhere(bootstrap, slot.service, hidden)
    slot.transactions.settle([at for at in slot.partitions if at[0] in slot.logs], [], None)
    visible = _read(bootstrap, stable)
    positions, committed = {*map(_position, visible)}, (committed | {*map(_transaction, visible)}) - {b""}
    absent = [record for record in hidden if _position(record) not in positions]
    of_epoch = (None, epoch)  # a recorded outcome has none
    absent = [record for record in absent if _number(record, "ce_epoch") in of_epoch]
    if lost := _with_predecessors(absent, committed):
        _write(slot.transactions, lost)
        log.warning("transactions_completed", transactions=_names(lost), records=len(lost))


def _read(bootstrap: str, starts: Ends, *, committed_only: bool = True) -> list[Message]:
    """What is behind these offsets. Behind the first undecided record of a partition there is nothing as a rule."""
    reads = (
        read_to_end(bootstrap, topic, own, committed_only=committed_only) for topic, own in starts.items()
    )
    return [record for read in reads for record in read]


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
            time = record.timestamp()[1]  # by it a later repair finds the other records of the transaction
            produce(producer, record.topic(), record.value(), record.key(), timestamp=time, **about)

    transactions.run_again(stage)


def _position(record: Message) -> tuple[str, int, int]:
    return record.topic(), record.partition(), record.offset()


def _transaction(record: Message) -> bytes:
    """The id of the transaction, empty if there is none; an event's header also has its number in it."""
    return (dict(record.headers() or ()).get("ce_transaction") or b"").split(b"/")[0]


def _names(records: Sequence[Message]) -> list[str]:
    return sorted({_transaction(record).decode(errors="replace") for record in records})


def _number(record: Message, header: str) -> int | None:
    text = dict(record.headers() or ()).get(header) or b""
    return int(text) if text.isdigit() else None
