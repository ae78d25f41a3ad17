"""What the checker looks at: every committed event of both logs, and what clients were told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from services.kernel.envelope import Metadata, read_headers
from services.kernel.log_reader import partitions_of, read_to_end
from services.kernel.serde import decode

LOGS = ("order.events", "inventory.events")


@dataclass(frozen=True)
class Recorded:
    """One event where it stands; `partitions` is the topic's number of them."""

    topic: str
    partition: int
    partitions: int
    offset: int
    key: str
    metadata: Metadata
    event: Any


@dataclass(frozen=True)
class Acknowledged:
    """What a client was told about one command; `kind` as in an outcome."""

    command_id: str
    subject: str
    kind: str
    version: int
    event_ids: tuple[str, ...] = ()
    code: str = ""


@dataclass
class Evidence:
    """`seen` are the event ids that some reader took for real (a read model, a lake); `at_rest`: no
    conversation is under way."""

    events: list[Recorded]
    acknowledged: list[Acknowledged] = field(default_factory=list)
    seen: Iterable[str] = ()
    at_rest: bool = False


def read_evidence(bootstrap: str, logs: Iterable[str] = LOGS) -> list[Recorded]:
    """Every committed event, per partition in offset order."""
    found = []
    for topic in logs:
        numbers = partitions_of(bootstrap, topic)
        for record in read_to_end(bootstrap, topic, dict.fromkeys(numbers, 0)):
            found.append(
                Recorded(
                    topic,
                    record.partition(),
                    len(numbers),
                    record.offset(),
                    record.key().decode(),
                    read_headers(record.headers()),
                    decode(record.value()),
                )
            )
    return found
