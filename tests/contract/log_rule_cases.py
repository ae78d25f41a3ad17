"""What records of an events topic are: the table that the services' rule and Spark's are both held to.

A case is the log of one partition (two has the topic) and what each record is, in order: `next`, `forked`,
`unreadable`, `waiting`, `applied`, `opening` or the reason of a foreign record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from contracts.inventory.events import StockReceived
from contracts.kernel.records import EpochOpened, RecordVerdict
from contracts.order.events import Line, OrderConfirmed, OrderPlaced
from services.kernel.log.rule import OPENING_KEY, Journal, Judged, digest_of, stream_of
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, partition_of, write_headers

TOPIC, PARTITIONS, NOW = "inventory.events", 2, 1_795_000_000_000_000
KEY, OTHER = (
    next(k for k in (f"sku-{n}" for n in range(first, 99)) if partition_of(k, 2) == 0) for first in (0, 50)
)
LONG = next(k for k in ("x" * n for n in range(2001, 2099)) if partition_of(k, 2) == 0)
ACCENTED = next(k for k in (f"æ/{n} ‰" for n in range(99)) if partition_of(k, 2) == 0)
ELSEWHERE = next(k for k in (f"sku-{n}" for n in range(99)) if partition_of(k, 2) == 1)
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class LogRecord:
    """A record as any consumer gives it, without its place."""

    key: bytes | None
    value: bytes | None
    headers: Headers

    def with_header(self, name: str, value: bytes | None) -> LogRecord:
        return replace(self, headers=(*(h for h in self.headers if h[0] != name), (name, value)))

    def without(self, name: str) -> LogRecord:
        return replace(self, headers=tuple(h for h in self.headers if h[0] != name))


@dataclass(frozen=True)
class Case:
    name: str
    log: tuple[LogRecord, ...]
    readings: tuple[str, ...]
    journal: Journal = field(default_factory=Journal)


def event(
    version: int, key: str = KEY, *, epoch: int = 1, event_id: str = "", quantity: int = 1
) -> LogRecord:
    """A record that the inventory worker could have written."""
    body = StockReceived(key, quantity, "", NOW)
    meta = Metadata(
        id=event_id or f"{key}-{version}",
        type=body.TYPE,
        subject=key,
        source="daybook/inventory",
        recorded_at=NOW,
        correlation_id="c",
        causation_id="c",
        epoch=epoch,
        version=version,
    )
    return LogRecord(key.encode(), encode(TOPIC, body), tuple(write_headers(meta)))


def opening(epoch: int) -> LogRecord:
    body = EpochOpened(epoch, "home", NOW)
    meta = Metadata(f"open-{epoch}", body.TYPE, OPENING_KEY, "daybook/inventory", NOW, "c", "c", epoch)
    return LogRecord(OPENING_KEY.encode(), encode(TOPIC, body), tuple(write_headers(meta)))


def judged(verdicts: Mapping[LogRecord, RecordVerdict]) -> Journal:
    verdict_of = {}
    for record, verdict in verdicts.items():
        about = dict(record.headers)
        version, event_id = int(about["ce_sequence"] or b""), (about["ce_id"] or b"").decode()
        stream = stream_of(TOPIC, (record.key or b"").decode())
        verdict_of[Judged(stream, version, event_id, digest_of(record.value))] = verdict
    return Journal(verdict_of, {record.stream: 1 for record in verdict_of}, len(verdict_of))


FORGED = event(2, event_id="forged", quantity=99)
FORGED_LATER = event(2, epoch=3, event_id="forged later")
GARBAGE = replace(event(2), value=b"\x00\x00\x00\x00\x07not avro")

# Text in a list, and in the records of a list.
CONFIRMED = encode("order.events", OrderConfirmed("o-1", NOW, ("MUG", "LAMP"), "France", "EUR", 2, 5))
PLACED = encode(
    "order.events",
    OrderPlaced(
        "o-1", "France", "EUR", NOW, lines=(Line("JUG", 1, 2), Line("MUG", 1, 3)), charges=(), gross=5
    ),
)


def repeated(record: LogRecord, name: str, value: bytes | None) -> LogRecord:
    """With a second header of that name behind the first."""
    return replace(record, headers=(*record.headers, (name, value)))


def foreign(name: str, record: LogRecord, reason: str) -> Case:
    """One foreign record between two good ones, and a good one of another key."""
    return Case(name, (event(1), record, event(2), event(1, OTHER)), ("next", reason, "next", "next"))


def unreadable(name: str, value: bytes | None) -> Case:
    log = (event(1), replace(event(2), value=value), event(3), event(1, OTHER))
    return Case(name, log, ("next", "unreadable", "waiting", "next"))


CASES = (
    Case("events in order", (event(1), event(1, OTHER), event(2)), ("next", "next", "next")),
    Case("a key that is not ASCII", (event(1, ACCENTED), event(2, ACCENTED)), ("next", "next")),
    foreign("no headers", LogRecord(b"x", b"\x01\x02", ()), "no_envelope"),
    foreign("no headers under a known key", replace(event(2), headers=()), "no_envelope"),
    foreign("no key", replace(event(2), key=None), "key_differs"),
    foreign("another key", replace(event(2), key=b"sku-x"), "key_differs"),
    foreign("wrong partition", event(1, ELSEWHERE), "wrong_partition"),
    foreign("no version", event(2).without("ce_sequence"), "no_version"),
    *(
        foreign(f"version {text!r}", event(2).with_header("ce_sequence", text), "no_envelope")
        for text in (
            b"",
            b"0",
            b"-1",
            b"02",
            b"+2",
            b" 2",
            b"2 ",
            b"2.0",
            b"1_0",
            "٢".encode(),
            b"x",
            b"2147483648",
            None,
        )
    ),
    *(
        foreign(f"epoch {text!r}", event(2).with_header("ce_epoch", text), "no_envelope")
        for text in (b"0", b"-1", b"x", b"1e0", b"99999999999", None)
    ),
    *(
        foreign(f"time {text!r}", event(2).with_header("ce_time", text), "no_envelope")
        for text in (
            b"now",
            b"2026-11-22",
            b"2026-11-22T10:00:00Z",
            b"2026-11-22T10:00:00.000000+00:00",
            b"2026-13-22T10:00:00.000000Z",
            b"2026-02-30T10:00:00.000000Z",
            b"2026-11-22T25:00:00.000000Z",
            b"2026-11-22T10:61:00.000000Z",
            b"2026-11-22T24:00:00.000000Z",
            b"2026-11-22T10:00:60.000000Z",
            b"2026-11-22T10:00:00.000000Z\n",
            b"2026-11-22 10:00:00.000000Z",
            b"0001-11-22T10:00:00.000000Z",
            b"1969-11-22T10:00:00.000000Z",
        )
    ),
    *(
        foreign(f"{name} {text!r}", event(2).with_header(name, text), "no_envelope")
        for name in ("ce_id", "ce_type", "ce_source", "ce_correlationid", "ce_causationid")
        for text in (b"", b"\xff", b"a\0b", None)
    ),
    foreign(
        "a header is repeated: the last one counts", repeated(event(2), "ce_sequence", b"x"), "no_envelope"
    ),
    foreign("a repeated header without a value", repeated(event(2), "ce_id", None), "no_envelope"),
    Case(
        "a header is repeated: the first one does not count",
        (event(1), repeated(event(2).with_header("ce_sequence", b"x"), "ce_sequence", b"2"), event(3)),
        ("next", "next", "next"),
    ),
    *(
        foreign(f"{name} without a value", event(2).with_header(name, None), "no_envelope")
        for name in ("ce_requesthash", "ce_transaction", "traceparent")
    ),
    *(
        Case(
            f"{name} {text!r}: who caused it decides nothing",
            (event(1), event(2).with_header(name, text), event(3)),
            ("next",) * 3,
        )
        for name in ("ce_authtype", "ce_authid", "ce_operatorid")
        for text in (b"", b"\xff", b"a\0b", b"user", None)
    ),
    foreign("a key that is too long", event(1, LONG), "key_differs"),
    foreign("an id is missing", event(2).without("ce_id"), "no_envelope"),
    foreign("a traceparent that is no text", event(2).with_header("traceparent", b"\xff"), "no_envelope"),
    foreign("huge epoch", event(2, epoch=2**31 - 1), "epoch_not_open"),
    foreign("tombstone without headers", LogRecord(KEY.encode(), None, ()), "no_envelope"),
    unreadable("bad Avro", GARBAGE.value),
    unreadable("unknown schema id", b"\x00\x00\x00\xff\xffx"),
    unreadable("not framed", b"x"),
    unreadable("tombstone with an envelope", None),
    unreadable("another first byte", b"\x01" + (event(2).value or b"")[1:]),
    unreadable(
        "text that is no UTF-8", (event(2).value or b"").replace(KEY.encode(), b"\xff" + KEY.encode()[1:])
    ),
    Case("text in a list", (event(1), replace(event(2), value=CONFIRMED)), ("next", "next")),
    Case("text in a list of records", (event(1), replace(event(2), value=PLACED)), ("next", "next")),
    unreadable("text in a list that is no UTF-8", CONFIRMED.replace(b"MUG", b"M\xffG")),
    unreadable("text in a list of records that is no UTF-8", PLACED.replace(b"MUG", b"M\xffG")),
    unreadable("longer than its schema", (event(2).value or b"") + b"x"),
    Case(
        "forged next version: the owner's record at that version forks",
        (event(1), FORGED, event(2), event(3), event(1, OTHER)),
        ("next", "next", "forked", "waiting", "next"),
    ),
    Case(
        "forged existing version",
        (event(1), event(2), FORGED, event(3), event(1, OTHER)),
        ("next", "next", "forked", "waiting", "next"),
    ),
    Case("gap", (event(1), event(3), event(2)), ("next", "forked", "waiting")),
    Case("a stream that does not begin with 1", (event(2), event(1)), ("forked", "waiting")),
    Case("a copy of the last record", (event(1), event(1), event(2)), ("next", "forked", "waiting")),
    Case(
        "forged next version, judged foreign",
        (event(1), FORGED, event(2), event(3)),
        ("next", "decided", "next", "next"),
        judged({FORGED: "foreign"}),
    ),
    Case(
        "forged existing version, judged foreign",
        (event(1), event(2), FORGED, event(3)),
        ("next", "next", "decided", "next"),
        judged({FORGED: "foreign"}),
    ),
    Case(
        "a copy, judged genuine",
        (event(1), event(2), event(1), event(2), event(3)),
        ("next", "next", "applied", "applied", "next"),
        judged({event(1): "genuine", event(2): "genuine"}),
    ),
    Case(
        "judged genuine, but not the next",
        (event(1), event(3), event(2)),
        ("next", "forked", "waiting"),
        judged({event(3): "genuine"}),
    ),
    Case(
        "suspect",
        (event(1), FORGED, event(3), event(1, OTHER)),
        ("next", "forked", "waiting", "next"),
        judged({FORGED: "suspect"}),
    ),
    Case(
        "a decision is about one value: another with the same id is not meant",
        (event(1), replace(FORGED, value=event(2).value), event(2)),
        ("next", "next", "forked"),
        judged({FORGED: "foreign"}),
    ),
    Case(
        "an unreadable record, judged foreign",
        (event(1), GARBAGE, event(2)),
        ("next", "decided", "next"),
        judged({GARBAGE: "foreign"}),
    ),
    Case(
        "a later epoch is opened",
        (event(1), opening(2), event(2, epoch=2), event(1, OTHER, epoch=2)),
        ("next", "opening", "next", "next"),
    ),
    Case(
        "an epoch that is not open yet, and one that is over",
        (event(1), event(2, epoch=2), opening(2), event(2), event(2, epoch=2)),
        ("next", "epoch_not_open", "opening", "epoch_not_open", "next"),
    ),
    Case(
        "opened twice, skipped numbers, opened backwards",
        (opening(2), opening(2), opening(5), opening(3), event(1, epoch=5)),
        ("opening", "opening", "opening", "epoch_not_open", "next"),
    ),
    Case(
        "epochs from before the openings, recorded at the upgrade",
        (event(1), event(2, epoch=3), event(3, epoch=1), event(3, epoch=4), event(3, epoch=3)),
        ("next", "next", "epoch_not_open", "epoch_not_open", "next"),
        Journal(epochs={TOPIC: frozenset({1, 3})}),
    ),
    Case(
        "an event that is foreign opens no recorded epoch",
        (event(1), event(1, ELSEWHERE, epoch=3), FORGED_LATER, event(2), event(3, epoch=3), event(4)),
        ("next", "wrong_partition", "decided", "next", "next", "epoch_not_open"),
        replace(judged({FORGED_LATER: "foreign"}), epochs={TOPIC: frozenset({3})}),
    ),
    Case(
        "an opening behind recorded epochs, and a recorded one that comes too late",
        (event(1), opening(4), event(2, epoch=4), event(1, OTHER, epoch=3), event(3, epoch=5)),
        ("next", "opening", "next", "epoch_not_open", "next"),
        Journal(epochs={TOPIC: frozenset({3, 5})}),
    ),
    Case(
        "an opening under an entity's key is an event without a version",
        (replace(opening(2), key=KEY.encode()).with_header("ce_subject", KEY.encode()), event(1)),
        ("no_version", "next"),
    ),
)
