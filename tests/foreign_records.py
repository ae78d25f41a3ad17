"""The ten kinds of record that do not belong into a log, each between events of a key of its own.

    {no headers, bad Avro, unknown schema id, tombstone, no key, wrong
    partition, bad sequence, huge epoch, forged next version, forged existing version}

`planted()` gives them for partition 0 of `inventory.events`, of two; `judge` resolves what stops its key.
tests/contract/log_rule_cases.py defines what each is to a reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from confluent_kafka import Producer

from contracts.kernel.records import RecordJudged, RecordVerdict
from services.kernel.log.control import write_journal
from services.kernel.log.rule import identity
from services.kernel.record.envelope import now_micros, partition_of, read_headers
from tests.contract.log_rule_cases import ELSEWHERE, NOW, TOPIC, LogRecord, event

EVENTS = 3
"""Each key has so many good events, of one unit each."""


@dataclass(frozen=True)
class Planted:
    """A key's log that contains the planted record. `stops`: the key stops there until an operator decides."""

    name: str
    key: str
    record: LogRecord
    log: tuple[LogRecord, ...]
    stops: bool = False


def planted() -> list[Planted]:
    keys = (key for number in range(10_000) if partition_of(key := f"planted-{number}", 2) == 0)
    logs = []

    def plant(name: str, record: LogRecord, key: str, after: int = 1, stops: bool = False) -> None:
        good = [_written(event(version, key)) for version in range(1, EVENTS + 1)]
        logs.append(Planted(name, key, record, (*good[:after], record, *good[after:]), stops))

    plant("no headers", replace(event(2, key := next(keys)), headers=()), key)
    plant("bad Avro", replace(event(2, key := next(keys)), value=b"\x00\x00\x00\x00\x1dx"), key, stops=True)
    unknown = b"\x00\x00\x00\xff\xffx"
    plant("unknown schema id", replace(event(2, key := next(keys)), value=unknown), key, stops=True)
    plant("tombstone", LogRecord((key := next(keys)).encode(), None, ()), key)
    plant("no key", replace(event(2, key := next(keys)), key=None), key)
    plant("wrong partition", event(1, ELSEWHERE), next(keys))
    plant("bad sequence", event(2, key := next(keys)).with_header("ce_sequence", b"two"), key)
    plant("huge epoch", event(2, key := next(keys), epoch=2**31 - 1), key)
    forged = event(2, key := next(keys), event_id=f"forged-{key}", quantity=99)
    plant("forged next version", forged, key, stops=True)
    forged = event(2, key := next(keys), event_id=f"forged-{key}", quantity=99)
    plant("forged existing version", forged, key, after=2, stops=True)
    return logs


def write_log(bootstrap: str, log: Sequence[LogRecord], topic: str = TOPIC, partition: int = 0) -> None:
    """Append the records to the partition, whatever their keys."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in log:
        about = {"headers": list(record.headers), "timestamp": NOW // 1000}
        producer.produce(topic, record.value, record.key, partition=partition, **about)
    assert producer.flush(30) == 0


def judge(
    bootstrap: str, records: Iterable[LogRecord], verdict: RecordVerdict = "foreign", topic: str = TOPIC
) -> None:
    """Decide about records of the log, as an operator does."""
    for record in records:
        stream, version, event_id, digest = identity(topic, read_headers(record.headers), record.value)
        decision = RecordJudged(stream, version, event_id, digest, verdict, "a test", now_micros())
        write_journal(bootstrap, [(stream, decision)])


def _written(record: LogRecord) -> LogRecord:
    """The event with the headers of a worker: each event is the effect of one command, in one transaction."""
    own = read_headers(record.headers).id.encode()
    return record.with_header("ce_transaction", own + b"/0/1").with_header("ce_causationid", own)
