"""consume → decode → encode → produce → commit, and nothing else: `python -m … BOOTSTRAP SERVICE`.

confluent-kafka and fastavro in one transaction per 500 records, with the producers that the shop has (two
ids in turn) and the collector's settings of its workers. No headers are read or written, nothing is
decided, remembered, answered or asked.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from contracts.lock import load_lock
from services.kernel.transactions import Transactions
from services.kernel.worker import keep_what_is_restored
from tests.bench.subjects.stretches import obey

BATCH = 500
FRAME = struct.Struct(">bI")
EVENTS = {"order": "daybook.order.OrderPlaced", "inventory": "daybook.inventory.StockReserved"}


class PlainLoop:
    """One partition-spanning consumer, `bench.events` as the target."""

    def __init__(self, bootstrap: str, service: str) -> None:
        lock = load_lock()
        self._topic, self._service = f"{service}.commands", service
        self._readers: dict[int, Any] = {}
        number = lock.id_of(f"{service}.events-{EVENTS[service]}")
        self._frame, self._writer = FRAME.pack(0, number), parse_schema(lock.schema(number))
        self._transactions = Transactions(bootstrap, ["bench-plain-0", "bench-plain-1"], 10_000)
        self._transactions.fence()
        keep_what_is_restored()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-plain",
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
        out: list[tuple[bytes, bytes]] = []
        offsets: dict[int, int] = {}
        for record in records:
            if record.error() is not None:
                raise KafkaException(record.error())
            out.append((record.key(), self._encode(self._decode(record.value()))))
            offsets[record.partition()] = record.offset() + 1
        if records:
            positions = [TopicPartition(self._topic, *place) for place in offsets.items()]
            self._transactions.run(
                lambda producer: _produce(producer, out), positions, self._consumer.consumer_group_metadata()
            )
        return len(records)

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
        out = BytesIO()
        out.write(self._frame)
        schemaless_writer(out, self._writer, command)
        return out.getvalue()


def _produce(producer: Producer, out: list[tuple[bytes, bytes]]) -> None:
    for key, value in out:
        producer.produce("bench.events", value, key)


if __name__ == "__main__":
    loop = PlainLoop(*sys.argv[1:3])
    if sys.argv[3:]:
        loop.skip(int(sys.argv[3]))
    obey(loop.work)
