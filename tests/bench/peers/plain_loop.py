"""consume → decode → encode → produce → commit, and nothing else: `python -m … BOOTSTRAP SERVICE KIND SKIP`.

confluent-kafka and fastavro in one transaction per 500 records, with the producers that the shop has (two
ids in turn) and the collector's settings of its workers. Nothing is decided or recorded. KIND `plain`: one
record for each command, no headers are read or written. KIND `records`: as many records as the shop writes,
of the same schemas and with the same headers: the event, the outcomes of the batch, and for each partition of an
inbox one record with a reservation for each SKU, or with an outcome for each order.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, TypeAlias
from uuid import uuid4

from confluent_kafka import KafkaException, Message, Producer, TopicPartition
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from contracts.lock import load_lock
from services.kernel.collector import keep_what_is_here
from services.kernel.log.clients import follower
from services.kernel.log.transactions import Transactions
from services.kernel.record.envelope import partition_of
from tests.bench.subjects.work_process import serve_work

BATCH = 500
FRAME = struct.Struct(">bI")
RESERVE, OUTCOMES = "daybook.inventory.ReserveStock", "daybook.kernel.OutcomeBatch"
BATCH_TYPE, MOST_MESSAGES = "daybook.kernel.InboxBatch", 500
Out: TypeAlias = tuple[str, bytes, bytes, list[tuple[str, bytes]] | None]
"""Topic, key, value, headers."""
INPUT = {"order": "order.commands", "inventory": "inventory.inbox"}
EVENTS = {"order": "daybook.order.OrderPlaced", "inventory": "daybook.inventory.StockReserved"}


class PlainLoop:
    """One partition-spanning consumer, `bench.events` as the target."""

    NAME = "bench-plain"

    def __init__(self, bootstrap: str, service: str) -> None:
        lock = load_lock()
        self._topic, self._service = INPUT[service], service
        self._readers: dict[int, Any] = {}
        number = lock.id_of(f"{service}.events-{EVENTS[service]}")
        self._frame, self._writer = FRAME.pack(0, number), parse_schema(lock.schema(number))
        self._transactions = Transactions(bootstrap, [f"{self.NAME}-0", f"{self.NAME}-1"], 10_000)
        self._transactions.fence()
        keep_what_is_here()
        self._consumer = follower(
            bootstrap,
            [TopicPartition(self._topic, partition, 0) for partition in (0, 1)],
            {
                "group.id": self.NAME,
                "queued.min.messages": 20_000,
                "check.crcs": False,
                "log_level": 3,
            },
        )

    def work(self, count: int) -> Mapping[str, float]:
        done = 0
        while done < count:
            done += self._turn(min(BATCH, count - done))
        return {}

    def _turn(self, most: int) -> int:
        records = self._consumer.consume(most, 0.1)
        offsets: dict[int, int] = {}
        for record in records:
            if record.error() is not None:
                raise KafkaException(record.error())
            offsets[record.partition()] = record.offset() + 1
        if records:
            out = self._out(records)
            positions = [TopicPartition(self._topic, *position) for position in offsets.items()]
            self._transactions.run(
                lambda producer: _produce(producer, out), positions, self._consumer.consumer_group_metadata()
            )
        return len(records)

    def _out(self, records: list[Message]) -> list[Out]:
        return [
            ("bench.events", record.key(), self._encode(self._decode(record.value())), None)
            for record in records
        ]

    def _decode(self, value: bytes) -> dict[str, Any]:
        number = FRAME.unpack_from(value)[1]
        schema = self._readers.get(number)
        if schema is None:
            schema = self._readers[number] = parse_schema(load_lock().schema(number))
        body = BytesIO(value)
        body.seek(FRAME.size)
        record: Any = schemaless_reader(body, schema, None)
        return dict(record)

    def _encode(self, command: dict[str, Any]) -> bytes:
        if "lines" in command:
            command["gross"] = sum([line["quantity"] * line["unit_price"] for line in command["lines"]])
        return _written(self._frame, self._writer, command)


class SameRecords(PlainLoop):
    """Writes the same records as the shop does for an accepted command."""

    NAME = "bench-records"

    def __init__(self, bootstrap: str, service: str) -> None:
        super().__init__(bootstrap, service)
        lock = load_lock()
        self._inbox = {"order": "inventory.inbox", "inventory": "order.inbox"}[service]
        content = RESERVE if service == "order" else OUTCOMES
        names = f"{self._inbox}-{content}", f"{service}.outcomes-{OUTCOMES}", f"{self._inbox}-{BATCH_TYPE}"
        (self._content, self._outcome_writer, self._batch_writer) = (
            (FRAME.pack(0, number), parse_schema(lock.schema(number))) for number in map(lock.id_of, names)
        )

    def _out(self, records: list[Message]) -> list[Out]:
        out: list[Out] = []
        outcomes: list[dict[str, Any]] = []
        messages: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
        for record in records:
            command_headers, command, key = dict(record.headers()), self._decode(record.value()), record.key()
            event_id = str(uuid4())
            attributes = {"ce_sequence": b"1", "ce_transaction": event_id.encode()}
            if "ce_requesthash" in command_headers:
                attributes["ce_requesthash"] = command_headers["ce_requesthash"]
            headers = self._headers(EVENTS[self._service], key, command_headers, event_id, attributes)
            out.append(("bench.events", key, self._encode(command), headers))
            outcome = _outcome(command_headers, key.decode(), event_id)
            if order := command_headers["ce_replyto"].rpartition(b":")[2].decode():
                content = _written(*self._content, {"outcomes": [outcome]})
                group = _group(OUTCOMES, command_headers, "", [(order, content)])
                messages[partition_of(order, 2)].append(group)
                continue
            outcomes.append(outcome)
            own: dict[int, list[tuple[str, bytes]]] = {}
            for sku in dict.fromkeys(line["sku"] for line in command["lines"]):
                own.setdefault(partition_of(sku, 2), []).append((sku, self._reservation(command, sku)))
            for number, contents in own.items():
                messages[number].append(_group(RESERVE, command_headers, key.decode(), contents))
        for groups in messages.values():
            out.extend(self._batches(groups))
        if outcomes:
            out.append(("bench.outcomes", b"", _written(*self._outcome_writer, {"outcomes": outcomes}), None))
        return out

    def _batches(self, groups: list[dict[str, Any]]) -> Iterator[Out]:
        now = {"ce_time": b"2026-01-01T00:00:00.000000Z", "ce_correlationid": b"c", "ce_id": b"c"}
        while groups:
            count, many = 0, 0
            while many < len(groups) and (count := count + len(groups[many]["messages"])) <= MOST_MESSAGES:
                many += 1
            part, groups = groups[: max(1, many)], groups[max(1, many) :]
            headers = self._headers(BATCH_TYPE, b"", now, str(uuid4()), {})
            value = _written(*self._batch_writer, {"groups": part})
            yield "bench.asks", b"", value, headers

    def _reservation(self, command: dict[str, Any], sku: str) -> bytes:
        fields = {"sku": sku, "order_id": command["order_id"], "quantity": 1}
        return _written(*self._content, {**fields, "occurred_at": command["occurred_at"]})

    def _headers(
        self,
        kind: str,
        subject: bytes,
        command_headers: dict[str, bytes],
        identity: str,
        more: dict[str, bytes],
    ) -> list[tuple[str, bytes]]:
        attributes = {
            "ce_specversion": b"1.0",
            "ce_type": kind.encode(),
            "ce_source": f"daybook/{self._service}".encode(),
            "content-type": b"application/avro",
            "ce_epoch": b"1",
            "ce_time": command_headers["ce_time"],
            "ce_id": identity.encode(),
            "ce_subject": subject,
            "ce_correlationid": command_headers["ce_correlationid"],
            "ce_causationid": command_headers["ce_id"],
        }
        return list((attributes | more).items())


def _group(
    kind: str, command_headers: dict[str, bytes], reply_key: str, contents: list[tuple[str, bytes]]
) -> dict[str, Any]:
    return {
        "type": kind,
        "correlation_id": command_headers["ce_correlationid"].decode(),
        "causation_id": command_headers["ce_id"].decode(),
        "traceparent": "",
        "reply_topic": "order.inbox" if reply_key else "",
        "reply_key": reply_key,
        "messages": [
            {"id": str(uuid4()), "subject": subject, "tag": "", "value": value} for subject, value in contents
        ],
    }


def _outcome(command_headers: dict[str, bytes], key: str, event_id: str) -> dict[str, Any]:
    return {
        "command_id": command_headers["ce_id"].decode(),
        "command_type": command_headers["ce_type"].decode(),
        "subject": key,
        "tag": "",
        "kind": "accepted",
        "version": 1,
        "event_ids": [event_id],
        "status": "placed",
        "code": "",
        "reason": "",
        "request_hash": command_headers.get("ce_requesthash", b"").decode(),
        "replayed": False,
    }


def _written(frame: bytes, schema: Any, fields: dict[str, Any]) -> bytes:
    out = BytesIO()
    out.write(frame)
    schemaless_writer(out, schema, fields)
    return out.getvalue()


def _produce(producer: Producer, out: list[Out]) -> None:
    for topic, key, value, headers in out:
        producer.produce(topic, value, key, headers=headers)


if __name__ == "__main__":
    kinds = {"plain": PlainLoop, "records": SameRecords}
    loop = kinds[sys.argv[3]](*sys.argv[1:3])
    serve_work(loop.work)
