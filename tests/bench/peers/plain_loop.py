"""consume → decode → encode → produce → commit, and nothing else: `python -m … BOOTSTRAP SERVICE KIND SKIP`.

confluent-kafka and fastavro in one transaction per 500 records, with the producers that the shop has (two
ids in turn) and the collector's settings of its workers. Nothing is decided or remembered. KIND `plain`: one
record for each command, no headers are read or written. KIND `records`: as many records as the shop writes,
of the same schemas and with the same headers: the event, an ask for each SKU, the outcomes of the batch, or
for a reservation its own outcome to its order.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from io import BytesIO
from typing import Any, TypeAlias
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from contracts.lock import load_lock
from services.kernel.collector import keep_what_is_here
from services.kernel.log.transactions import Transactions
from tests.bench.subjects.stretches import obey

BATCH = 500
FRAME = struct.Struct(">bI")
ASK, OUTCOMES = "daybook.inventory.ReserveStock", "daybook.kernel.OutcomeBatch"
Out: TypeAlias = tuple[str, bytes, bytes, list[tuple[str, bytes]] | None]
"""Topic, key, value, headers."""
EVENTS = {"order": "daybook.order.OrderPlaced", "inventory": "daybook.inventory.StockReserved"}


class PlainLoop:
    """One partition-spanning consumer, `bench.events` as the target."""

    NAME = "bench-plain"

    def __init__(self, bootstrap: str, service: str) -> None:
        lock = load_lock()
        self._topic, self._service = f"{service}.commands", service
        self._readers: dict[int, Any] = {}
        number = lock.id_of(f"{service}.events-{EVENTS[service]}")
        self._frame, self._writer = FRAME.pack(0, number), parse_schema(lock.schema(number))
        self._transactions = Transactions(bootstrap, [f"{self.NAME}-0", f"{self.NAME}-1"], 10_000)
        self._transactions.fence()
        keep_what_is_here()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.NAME,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "queued.min.messages": 20_000,
                "check.crcs": False,
                "log_level": 3,
            }
        )
        self._consumer.assign([TopicPartition(self._topic, partition, 0) for partition in (0, 1)])

    def work(self, count: int) -> Mapping[str, float]:
        done = 0
        while done < count:
            done += self._turn(min(BATCH, count - done))
        return {}

    def skip(self, count: int) -> None:
        """Leave records out that are not commands of the benchmark."""
        while count:
            count -= len(self._consumer.consume(count, 1.0))

    def _turn(self, most: int) -> int:
        records = self._consumer.consume(most, 0.1)
        offsets: dict[int, int] = {}
        for record in records:
            if record.error() is not None:
                raise KafkaException(record.error())
            offsets[record.partition()] = record.offset() + 1
        if records:
            out = self._out(records)
            positions = [TopicPartition(self._topic, *place) for place in offsets.items()]
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
    """Writes what the shop writes for a command that is accepted."""

    NAME = "bench-records"

    def __init__(self, bootstrap: str, service: str) -> None:
        super().__init__(bootstrap, service)
        lock = load_lock()
        asks, outcomes = (
            lock.id_of(name) for name in (f"inventory.commands-{ASK}", f"{service}.outcomes-{OUTCOMES}")
        )
        self._ask_frame, self._ask_writer = FRAME.pack(0, asks), parse_schema(lock.schema(asks))
        self._outcome_frame = FRAME.pack(0, outcomes)
        self._outcome_writer = parse_schema(lock.schema(outcomes))

    def _out(self, records: list[Message]) -> list[Out]:
        out: list[Out] = []
        outcomes: list[dict[str, Any]] = []
        for record in records:
            asked, command, key = dict(record.headers()), self._decode(record.value()), record.key()
            event_id = str(uuid4())
            about = {"ce_sequence": b"1", "ce_transaction": event_id.encode()}
            if "ce_requesthash" in asked:
                about["ce_requesthash"] = asked["ce_requesthash"]
            headers = self._headers(EVENTS[self._service], key, asked, event_id, about)
            out.append(("bench.events", key, self._encode(command), headers))
            for sku in dict.fromkeys(line["sku"] for line in command.get("lines", ())):
                about = {"ce_replyto": b"order.commands:::" + key}
                headers = self._headers(ASK, sku.encode(), asked, str(uuid4()), about)
                out.append(("bench.asks", sku.encode(), self._ask(command, sku), headers))
            outcome = _outcome(asked, key.decode(), event_id)
            if order := asked["ce_replyto"].rpartition(b":")[2]:
                headers = self._headers(OUTCOMES, order, asked, str(uuid4()), {})
                out.append(("bench.outcomes", order, self._outcomes([outcome]), headers))
            else:
                outcomes.append(outcome)
        if outcomes:
            out.append(("bench.outcomes", b"", self._outcomes(outcomes), None))
        return out

    def _outcomes(self, outcomes: list[dict[str, Any]]) -> bytes:
        return _written(self._outcome_frame, self._outcome_writer, {"outcomes": outcomes})

    def _ask(self, command: dict[str, Any], sku: str) -> bytes:
        fields = {"sku": sku, "order_id": command["order_id"], "quantity": 1}
        return _written(self._ask_frame, self._ask_writer, {**fields, "occurred_at": command["occurred_at"]})

    def _headers(
        self, kind: str, subject: bytes, asked: dict[str, bytes], identity: str, more: dict[str, bytes]
    ) -> list[tuple[str, bytes]]:
        about = {
            "ce_specversion": b"1.0",
            "ce_type": kind.encode(),
            "ce_source": f"daybook/{self._service}".encode(),
            "content-type": b"application/avro",
            "ce_epoch": b"1",
            "ce_time": asked["ce_time"],
            "ce_id": identity.encode(),
            "ce_subject": subject,
            "ce_correlationid": asked["ce_correlationid"],
            "ce_causationid": asked["ce_id"],
        }
        return list((about | more).items())


def _outcome(asked: dict[str, bytes], key: str, event_id: str) -> dict[str, Any]:
    return {
        "command_id": asked["ce_id"].decode(),
        "command_type": asked["ce_type"].decode(),
        "subject": key,
        "tag": "",
        "kind": "accepted",
        "version": 1,
        "event_ids": [event_id],
        "status": "placed",
        "code": "",
        "reason": "",
        "request_hash": asked.get("ce_requesthash", b"").decode(),
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
    loop.skip(int(sys.argv[4]))
    obey(loop.work)
