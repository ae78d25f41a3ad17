"""An outbox relay: every 100 ms it copies what is new in the outbox to the log and marks it as sent.

`python -m …`. Delivery is at least once, as usual for relays; a batch has everything that is new.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg
import msgspec
import uvloop
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from services.kernel.log.clients import writer
from tests.bench.peers.outbox import SCHEMA

POLL_SECONDS = 0.1
_NEW = "SELECT id, key, value, headers FROM peer.outbox ORDER BY id LIMIT 5000"
_SENT = "DELETE FROM peer.outbox WHERE id = ANY($1)"


async def main() -> None:
    producer = writer(os.environ["DAYBOOK_KAFKA"], {"linger.ms": 1, "log_level": 3})
    connection = await asyncpg.connect(os.environ["DAYBOOK_DATABASE_URL"])
    await connection.execute(SCHEMA)
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        rows = await connection.fetch(_NEW)
        if rows:
            await asyncio.to_thread(_send, producer, rows)
            await connection.execute(_SENT, [row["id"] for row in rows])
        due = max(due + POLL_SECONDS, loop.time())
        await asyncio.sleep(due - loop.time())


def _send(producer: Producer, rows: list[Any]) -> None:
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    for row in rows:
        headers = [(name, value) for name, value in msgspec.msgpack.decode(row["headers"])]
        producer.produce("order.events", row["value"], row["key"], headers=headers, on_delivery=delivered)
    if producer.flush(30) or errors:
        raise KafkaException(*errors[:1])


if __name__ == "__main__":
    uvloop.run(main())
