"""A site's inputs: draining them, and moving a running shop's workers from the commands to the inbox (ADR 20)."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from contracts.topics import TOPICS
from infra.base.errors import NotDone
from infra.base.waiting import wait_until
from infra.log.control import write_inputs
from infra.log.parked import parked_commands
from infra.log.positions import committed_positions
from infra.log.topics import SERVICES
from services.kernel.log import clients
from services.kernel.log.control import read_control
from services.kernel.log.reader import (
    LogTail,
    NotKnown,
    Partition,
    Positions,
    high_watermarks,
    last_stable_offsets,
    partitions_of,
    read_to_end,
)
from services.kernel.record.codec import Undecodable, decode, messages_in, topic_of
from services.kernel.record.envelope import now_micros

PAUSE_SECONDS = 0.2
NAMED = 5


def drain(bootstrap: str, seconds: float) -> str:
    """Wait until no command is left, so that every conversation has ended or waits for an operator.

    A worker commits what it consumed together with what it sends: when every topic is consumed twice in a row with
    the same ends, nothing more is sent. Returns a remark in words. Raises NotDone, naming what is left.
    """
    before: dict[str, dict[str, Positions]] | None = None

    def drained() -> bool:
        nonlocal before
        ends, emptied = _ends(bootstrap), before
        consumed = [at for service in SERVICES for at in _consumed(admin, service, ends[service]).items()]
        left = any(behind.records for behind in tail.behind(consumed, SECONDS).values())
        # what a transaction that is under way sends is seen after its end
        whole = not left and ends == _ends(bootstrap, last_stable_offsets)
        before = ends if whole else None
        return whole and ends == emptied

    admin = clients.admin(bootstrap)
    with closing(LogTail(bootstrap)) as tail:  # one client for all readings: writes are paused meanwhile
        wait_until(
            drained,
            "every input is consumed to its end",
            seconds,
            every=PAUSE_SECONDS,
            later=(NotKnown,),
            error=lambda late: NotDone(_blocked(bootstrap, late.seconds)),
        )
    parked = len(parked_commands(bootstrap))
    return f"{parked} parked, they stay here" if parked else ""


def _ends(
    bootstrap: str, ends: Callable[[str, str, list[int]], Positions] = high_watermarks
) -> dict[str, dict[str, Positions]]:
    """By service and topic."""
    return {
        service: {
            topic: ends(bootstrap, topic, partitions_of(bootstrap, topic)) for topic in TOPICS[service].inputs
        }
        for service in SERVICES
    }


def unconsumed(bootstrap: str, service: str, ends: Mapping[str, Positions]) -> list[Message]:
    """The records of these inputs between the committed positions of the service's workers and the ends."""
    consumed = _consumed(clients.admin(bootstrap), service, ends)
    return [
        record
        for topic, own in ends.items()
        for record in read_to_end(bootstrap, topic, {number: consumed[topic, number] for number in own}, own)
    ]


def _consumed(admin: AdminClient, service: str, topics: Mapping[str, Iterable[int]]) -> dict[Partition, int]:
    """The next offset of the service's workers in each of these partitions."""
    starts = {(topic, number): 0 for topic, numbers in topics.items() for number in numbers}
    return starts | committed_positions(admin, f"{service}-workers", starts)


def _blocked(bootstrap: str, seconds: float) -> str:
    left = [record for name, own in _ends(bootstrap).items() for record in unconsumed(bootstrap, name, own)]
    messages = [(record, messages_in(record)) for record in left]
    unreadable = [record for record, own in messages if not own]
    waiting = Counter(message.metadata.type for _, own in messages for message in own)
    if unreadable:
        waiting["unreadable"] = len(unreadable)
    kinds = ", ".join(f"{count} {kind}" for kind, count in waiting.most_common(NAMED))
    keyed = [message.key for _, own in messages for message in own] + [record.key() for record in unreadable]
    keys = ", ".join(sorted({(key or b"").decode(errors="replace") for key in keyed})[:NAMED])
    parked = ", ".join(command.position for command in parked_commands(bootstrap)[:NAMED])
    return (
        f"not drained within {seconds:.0f} s: {kinds or 'new commands keep coming'} (of {keys or 'no key'}); "
        f"parked: {parked or 'none'}. Are the workers ready? `./daybook status`. Writes are accepted again."
    )


SECONDS = 30.0
# Within this time every worker that runs has read the record of the switch.
SETTLE_SECONDS = 5.0


def switch(bootstrap: str) -> None:
    """Let workers write to the inbox. Raises NotDone where a partition of an inbox has no reader yet."""
    if read_control(bootstrap).phase != "commands":
        return
    unread = [partition for service in SERVICES for partition in _unread(bootstrap, service)]
    if unread:
        raise NotDone(f"no worker reads {', '.join(unread)} yet: start every worker with this version first")
    write_inputs(bootstrap, "inbox")


def close(bootstrap: str) -> None:
    """Park commands and outcomes of workers that stand among the commands.

    Raises NotDone before `switch`, and while such records still wait there.
    """
    control = read_control(bootstrap)
    if control.phase == "closed":
        return
    if control.inputs is None:
        raise NotDone("the workers have not moved to the inbox yet: `./daybook topics inputs switch`")
    passed = (now_micros() - control.inputs.recorded_at) / 1_000_000
    time.sleep(max(0.0, SETTLE_SECONDS - passed))
    for service in SERVICES:
        topic = TOPICS[service].commands
        ends = {topic: high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic))}
        if left := sum(_is_from_a_worker(record) for record in unconsumed(bootstrap, service, ends)):
            raise NotDone(
                f"{left} records of workers still wait in {topic}: try again when they are executed"
            )
    write_inputs(bootstrap, "closed")


def _unread(bootstrap: str, service: str) -> list[str]:
    """The partitions of a service's inbox in which no worker has begun to read."""
    inbox = TOPICS[service].inbox
    partitions = [(inbox, number) for number in partitions_of(bootstrap, inbox)]
    begun = committed_positions(clients.admin(bootstrap), f"{service}-workers", partitions)
    return [f"{inbox}/{number}" for _, number in partitions if (inbox, number) not in begun]


def _is_from_a_worker(record: Message) -> bool:
    """Kernel records among the commands are outcomes, and have no topic of their own."""
    try:
        return bool(topic_of(decode(record.value()).TYPE) != record.topic())
    except KeyError:
        return True
    except Undecodable:
        return False
