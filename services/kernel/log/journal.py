"""`site.journal`: decisions on records of the log, changes of the active site, and operators' acts; mirrored, kept for
ever, written by the active site."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from confluent_kafka import KafkaError, TopicPartition

from contracts.kernel.records import EpochsRecorded, LossReport, OperatorActed, RecordJudged, SiteSwitch
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.reader import read_to_end
from services.kernel.log.rule import Journal, Judged, stream_of
from services.kernel.record.codec import Undecodable, decode, encode

TOPIC = "site.journal"
WRITE_SECONDS = 20.0


def with_record(journal: Journal, value: bytes | None) -> Journal:
    """The journal with one more record. What is not a decision of ours changes nothing: a foreign record here
    must not stop a reader."""
    try:
        match decode(value):
            case RecordJudged() as judged:
                return with_judgement(journal, judged)
            case EpochsRecorded(topic=topic, epochs=epochs):
                return replace(journal, epochs={**journal.epochs, topic: frozenset(epochs)})
            case _:
                return journal
    except Undecodable:
        return journal


def with_judgement(journal: Journal, judged: RecordJudged) -> Journal:
    """The journal with one more decision."""
    about = Judged(judged.stream, judged.version, judged.event_id, judged.digest)
    number = journal.count + 1
    return replace(
        journal,
        verdicts={**journal.verdicts, about: judged.verdict},
        streams={**journal.streams, judged.stream: number},
        count=number,
    )


def read_journal(bootstrap: str) -> Journal:
    """The decisions that are recorded at this moment."""
    journal = Journal()
    for record in read_to_end(bootstrap, TOPIC, {0: 0}):
        journal = with_record(journal, record.value())
    return journal


class JournalWatch:
    """Follows `site.journal` in its own thread: `journal` is its newest state, never a half-read one."""

    def __init__(self, bootstrap: str) -> None:
        self.journal = read_journal(bootstrap)
        self._bootstrap = bootstrap
        self._looked_at: Journal | None = None
        threading.Thread(target=self._follow, name="journal", daemon=True).start()

    def news(self, honoured: Journal, topic: str) -> bool:
        """Whether there is a decision on records of an events topic that `honoured` does not contain."""
        now = self.journal
        if now is self._looked_at:
            return False
        self._looked_at, streams = now, stream_of(topic, "")
        return now.epochs.get(topic) != honoured.epochs.get(topic) or any(
            about.stream.startswith(streams) and honoured.verdicts.get(about) != verdict
            for about, verdict in now.verdicts.items()
        )

    def _follow(self) -> None:
        """Runs as long as the process. While the broker is unreachable, nothing changes."""
        consumer = clients.reader(self._bootstrap, clients.LASTING | {"fetch.wait.max.ms": 500})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        seen = Journal()
        while True:
            record = consumer.poll(1)
            if record is None:
                continue
            if (error := record.error()) is None:
                seen = with_record(seen, record.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                self.journal = seen


def write_journal(
    bootstrap: str,
    records: Iterable[tuple[str, RecordJudged | EpochsRecorded | SiteSwitch | LossReport | OperatorActed]],
) -> None:
    """Append records (key and value). Raises TimeoutError where the broker does not take them."""
    producer = clients.writer(bootstrap, {"message.timeout.ms": int(WRITE_SECONDS * 1000), "log_level": 0})
    new = (NewRecord(TOPIC, key, encode(TOPIC, record), 0) for key, record in records)
    deliver(producer, new, WRITE_SECONDS + 1)
