"""Whether a site's conversations are over: every service's inputs are consumed to their ends, twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from confluent_kafka import Message, TopicPartition

from contracts.topics import TOPICS
from infra.base.waiting import wait_until
from infra.dr.steps import NotDone
from infra.log.parked import parked_commands
from infra.log.topics import SERVICES
from services.kernel.log import clients
from services.kernel.log.reader import Positions, high_watermarks, partitions_of, read_to_end

PAUSE_SECONDS = 0.2
NAMED = 5


def drain(bootstrap: str, seconds: float) -> str:
    """Wait until no command is left, so that every conversation has ended or waits for somebody's decision.

    A worker commits what it consumed together with what it asks for: with every topic empty twice in a row
    and no new end in between, nobody asks for anything any more. Answers how that went, in words. Raises
    NotDone, naming what is left.
    """
    before: dict[str, dict[str, Positions]] | None = None
    left: list[Message] = []

    def drained() -> bool:
        nonlocal before, left
        ends, emptied = _ends(bootstrap), before
        left = [record for service in SERVICES for record in unconsumed(bootstrap, service, ends[service])]
        before = None if left else ends
        return not left and ends == emptied

    wait_until(
        drained,
        "every input is consumed to its end",
        seconds,
        every=PAUSE_SECONDS,
        error=lambda late: NotDone(_blocked(bootstrap, left, late.seconds)),
    )
    parked = len(parked_commands(bootstrap))
    return f"{parked} parked, they stay here" if parked else ""


def _ends(bootstrap: str) -> dict[str, dict[str, Positions]]:
    """By service and topic."""
    return {
        service: {
            topic: high_watermarks(bootstrap, topic, partitions_of(bootstrap, topic))
            for topic in TOPICS[service].inputs
        }
        for service in SERVICES
    }


def unconsumed(bootstrap: str, service: str, ends: Mapping[str, Positions]) -> list[Message]:
    """The records of these inputs between what the service's workers have committed and the ends."""
    asking = clients.reader(bootstrap, {"group.id": f"{service}-workers", "log_level": 3})
    try:
        places = [TopicPartition(topic, number) for topic, own in ends.items() for number in own]
        committed = asking.committed(places, 30)
    finally:
        asking.close()
    starts: dict[str, dict[int, int]] = {topic: {} for topic in ends}
    for at in committed:
        starts[at.topic][at.partition] = max(0, at.offset)
    return [
        record for topic, own in ends.items() for record in read_to_end(bootstrap, topic, starts[topic], own)
    ]


def _blocked(bootstrap: str, left: list[Message], seconds: float) -> str:
    waiting = Counter(dict(record.headers() or ()).get("ce_type", b"?").decode() for record in left)
    kinds = ", ".join(f"{count} {kind}" for kind, count in waiting.most_common(NAMED))
    keys = ", ".join(sorted({(record.key() or b"").decode() for record in left})[:NAMED])
    parked = ", ".join(each.position for each in parked_commands(bootstrap)[:NAMED])
    return (
        f"not drained within {seconds:.0f} s: {kinds or 'new commands keep coming'} (of {keys or 'nobody'}); "
        f"parked: {parked or 'none'}. Are the workers ready? `./daybook status`. Writes are taken again."
    )
