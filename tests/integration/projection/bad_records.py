"""The ten kinds of record that a foreign producer, an operator or a bug may write into `order.events`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from contracts.kernel.records import RecordJudged, RecordVerdict
from services.kernel.log.control import write_journal
from services.kernel.log.rule import identity
from services.kernel.record.codec import encode
from services.kernel.record.envelope import partition_of, uuid7, write_headers
from tests.integration.projection.shop_log import PARTITIONS, Event, LogWriter, order_life

TOPIC = "order.events"
FOREIGN = {
    "no headers": "no_envelope",
    "no key": "key_differs",
    "wrong partition": "wrong_partition",
    "bad sequence": "no_envelope",
    "huge epoch": "epoch_not_open",
}
"""Those that are passed over, and why."""
STOPS = {
    "bad Avro": "unreadable",
    "unknown schema id": "unreadable",
    "tombstone": "unreadable",
    "forged next version": "forked",
    "forged existing version": "forked",
}
"""Those that stop their stream until somebody decides, and how."""
KINDS = (*FOREIGN, *STOPS)
VALUES: dict[str, bytes | None] = {
    "bad Avro": encode(TOPIC, order_life("o", random.Random(2))[0].body)[:9],
    "unknown schema id": b"\0\0\x0f\x42\x3fjunk",
    "tombstone": None,
}


def life(order_id: str) -> list[Event]:
    """An order of four events or more."""
    return next(
        events
        for seed in range(99)
        if len(events := order_life(order_id, random.Random(f"{order_id} {seed}"))) > 3
    )


@dataclass
class Planted:
    """Writes one order for each kind, with a record of that kind between its second and its third event."""

    writer: LogWriter
    lives: dict[str, list[Event]] = field(default_factory=dict)
    records: dict[str, Event] = field(default_factory=dict)
    values: dict[str, bytes | None] = field(default_factory=dict)

    def plant(self, *kinds: str) -> None:
        for kind in kinds:
            own = self.lives[kind] = life(f"victim-{kind.replace(' ', '-')}")
            self.writer.write(own[:2])
            self.records[kind] = self._plant(kind, own)
            self.writer.write(own[2:])

    @property
    def events(self) -> list[Event]:
        """The events of the streams' owner."""
        return [event for own in self.lives.values() for event in own]

    def judge(self, kafka: str, *kinds: str, verdict: RecordVerdict = "foreign") -> None:
        """Writes the decisions that `./daybook streams resolve` writes."""
        judged = []
        for kind in kinds:
            metadata = self.records[kind].metadata
            about = identity(TOPIC, metadata, self.values[kind])
            judged.append((about.stream, RecordJudged(*about, verdict, "a test", 0)))
        write_journal(kafka, judged)

    def _plant(self, kind: str, own: list[Event]) -> Event:
        """The record claims to be the third event; `forged existing version`: the second."""
        model = own[1] if kind == "forged existing version" else own[2]
        forged = replace(model, metadata=model.metadata._replace(id=uuid7()))
        key: bytes | None = forged.metadata.subject.encode()
        partition = partition_of(forged.metadata.subject, PARTITIONS)
        match kind:
            case "wrong partition":
                partition = 1 - partition
            case "no key":
                key = None
            case "huge epoch":
                forged = replace(forged, metadata=forged.metadata._replace(epoch=2**31 - 1))
        headers: list[tuple[str, bytes | None]] = [*write_headers(forged.metadata)]
        if kind == "bad sequence":
            headers = [(name, b"03" if name == "ce_sequence" else text) for name, text in headers]
        value = self.values[kind] = VALUES.get(kind, encode(TOPIC, forged.body))
        self.writer.write_record(TOPIC, partition, key, value, [] if kind == "no headers" else headers)
        return forged
