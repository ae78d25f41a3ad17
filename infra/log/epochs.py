"""The upgrade of a log from before records opened epochs: its epochs are recorded once, in the journal.

This happens before anything of the new version reads or writes the log. A record that comes later then
cannot make its epoch a recorded one.
"""

from __future__ import annotations

from contracts.kernel.records import EpochsRecorded
from infra.log.event_log import EVENT_TOPICS, journal_at, kind_in_any_epoch
from services.kernel.log.control import read_control
from services.kernel.log.journal import write_journal
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.rule import FIRST_EPOCH, Event, Opening
from services.kernel.record.envelope import now_micros


def record_epochs(bootstrap: str) -> list[EpochsRecorded]:
    """Write the missing records of an active site; none at a passive one, whose journal is a copy.

    Raises NotCaughtUp, or TimeoutError where the broker does not take them.
    """
    role = read_control(bootstrap).role
    if role.role != "active":
        return []
    known = journal_at(bootstrap).epochs
    found = [
        EpochsRecorded(topic, unopened(bootstrap, topic, role.epoch), now_micros())
        for topic in EVENT_TOPICS
        if topic not in known
    ]
    write_journal(bootstrap, [(each.topic, each) for each in found])
    return found


def unopened(bootstrap: str, topic: str, last: int) -> tuple[int, ...]:
    """The epochs after the first, up to `last`, of events with no opening before them in their partition."""
    if last == FIRST_EPOCH:
        return ()  # no other epoch was ever written: nothing to look for
    numbers = partitions_of(bootstrap, topic)
    opened = {number: {FIRST_EPOCH} for number in numbers}
    found: set[int] = set()
    for record in read_to_end(bootstrap, topic, dict.fromkeys(numbers, 0)):
        match kind_in_any_epoch(record, len(numbers)):
            case Opening(epoch=epoch):
                opened[record.partition()].add(epoch)
            case Event(metadata=metadata) if metadata.epoch <= last:
                found |= {metadata.epoch} - opened[record.partition()]
    return tuple(sorted(found))
