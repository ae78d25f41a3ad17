"""Transactions of which a broker forgot some markers: part is visible, the rest is written again.

While a cluster's only broker comes back from a crash, its partitions have no leader for a moment. Kafka 4 then takes
them for deleted ("these partitions are likely deleted already") and calls a decided transaction complete whose markers
it never wrote. Where the crash came between two markers of a commit, an outcome may be visible, and acknowledged, whose
event is not. `Transactions.settle` can only abort what is left: see docs/adr/0042-half-committed-transactions.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import structlog
from confluent_kafka import Message, Producer

from contracts.topics import TOPICS
from services.kernel.log.reader import high_watermarks, last_stable_offsets, offsets_at, read_to_end
from services.kernel.log.transactions import Transactions, produce

MARGIN_MS = 1000  # between two records of one transaction
log = structlog.get_logger()


def hidden_records(bootstrap: str, service: str, numbers: Sequence[int]) -> list[Message]:
    """The events and recorded outcomes behind the first undecided one of each partition; normally none.

    The caller has fenced the only writer of the partitions `numbers`: nothing is under way. Raises `NotCaughtUp`.
    """
    hidden = list[Message]()
    for topic in (TOPICS[service].events, TOPICS[service].answers):
        stable = last_stable_offsets(bootstrap, topic, list(numbers))
        ends = high_watermarks(bootstrap, topic, list(numbers))
        hidden += read_to_end(bootstrap, topic, stable, ends, committed_only=False)
    return hidden


def write_again(
    transactions: Transactions, bootstrap: str, service: str, hidden: Sequence[Message], epoch: int
) -> None:
    """Write the `hidden` records that did not become visible, of transactions that are visible elsewhere.

    The caller has aborted what was undecided (`Transactions.settle`): each record is visible once. Events of another
    `epoch` are left out, because their outcomes may be at another site. Raises `OwnershipLost` or `Aborted`.
    """
    lost = [record for record in hidden if _epoch(record) in (None, epoch)]
    if not lost:
        return
    since = min(record.timestamp()[1] for record in lost) - MARGIN_MS
    own, inboxes = TOPICS[service], [topics.inbox for topics in TOPICS.values()]
    visible = list(
        chain.from_iterable(
            _visible(bootstrap, topic, since) for topic in (own.events, own.answers, own.outcomes, *inboxes)
        )
    )
    positions = {_position(record) for record in visible}
    committed = {_transaction(record) for record in visible} - {b""}
    lost = [
        record for record in lost if _position(record) not in positions and _transaction(record) in committed
    ]
    if not lost:
        return

    def stage(producer: Producer) -> None:
        for record in lost:
            about = {"partition": record.partition(), "headers": record.headers()}
            produce(producer, record.topic(), record.value(), record.key(), **about)

    transactions.run_again(stage)
    names = sorted({_transaction(record).decode() for record in lost})
    log.warning("transaction_completed", transactions=names, records=len(lost))


def _visible(bootstrap: str, topic: str, since: int) -> Iterator[Message]:
    """What is committed since a moment (ms), up to the first undecided record: others write to some of the topics."""
    starts = offsets_at(bootstrap, topic, since)
    yield from read_to_end(bootstrap, topic, starts, last_stable_offsets(bootstrap, topic, list(starts)))


def _position(record: Message) -> tuple[str, int, int]:
    return record.topic(), record.partition(), record.offset()


def _transaction(record: Message) -> bytes:
    """The id of the transaction; an event's header also has its number in it."""
    return (dict(record.headers() or ()).get("ce_transaction") or b"").split(b"/")[0]


def _epoch(record: Message) -> int | None:
    """None for a recorded outcome, which has no envelope."""
    epoch = dict(record.headers() or ()).get("ce_epoch", b"")
    return int(epoch) if epoch.isdigit() else None
