"""A foreign record in an events topic stops at most its own key."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from contracts.inventory.commands import ReceiveStock
from contracts.kernel.records import Outcome, RecordJudged, SiteRole
from infra.base.waiting import wait_until
from infra.log.control import lift_hold, write_hold, write_role
from infra.log.topics import catalogue, create_topics
from services.kernel.exit_codes import EXIT_JUDGED
from services.kernel.log.control import write_journal
from services.kernel.log.reader import read_to_end
from services.kernel.log.rule import OPENING_KEY, digest_of
from services.kernel.record.envelope import now_micros, partition_of
from tests.contract.log_rule_cases import LogRecord, event
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import WorkerProcess

pytestmark = pytest.mark.long

TOPIC, STATE = "inventory.events", "inventory.state"
GOOD = "good"
# The worker has written version 1 of each of these keys before the record arrives.
FOREIGN: dict[str, LogRecord] = {
    "no-headers": LogRecord(b"no-headers", b"\x01", ()),
    "no-key": replace(event(2, "no-key"), key=None),
    "other-key": replace(event(2, "other-key"), key=b"another"),
    "no-sequence": event(2, "no-sequence").without("ce_sequence"),
    "bad-sequence": event(2, "bad-sequence").with_header("ce_sequence", b"two"),
    "huge-epoch": event(2, "huge-epoch", epoch=2**31 - 1),
    "bare-tombstone": LogRecord(b"bare-tombstone", None, ()),
    "misplaced": event(2, "misplaced"),
}
STOPPING: dict[str, LogRecord] = {
    "bad-avro": replace(event(2, "bad-avro"), value=b"\0\0\0\0\7?"),
    "unknown-schema": replace(event(2, "unknown-schema"), value=b"\0\0\0\xff\xff?"),
    "tombstone": replace(event(2, "tombstone"), value=None),
    "forged-next": event(2, "forged-next", quantity=99),
    "forged-existing": event(1, "forged-existing", event_id="forged", quantity=99),
    "gap": event(7, "gap"),
}


def put(bootstrap: str, key: str, record: LogRecord) -> None:
    """Writes like a foreign producer, without a transaction, to the key's partition; `misplaced` to the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 3})
    number = partition_of(key, 2)
    where = 1 - number if key == "misplaced" else number
    producer.produce(TOPIC, record.value, record.key, headers=list(record.headers), partition=where)
    assert producer.flush(10) == 0


class Stock:
    """Receives one piece at a time, with a new command id each time."""

    def __init__(self, client: Client) -> None:
        self._client, self._number, self.epoch = client, 0, 1

    def receive(self, *keys: str) -> dict[str, Outcome]:
        """The outcomes of one receipt for each key."""
        ids = {}
        for key in keys:
            self._number += 1
            ids[key] = f"receipt-{self._number}"
            self._client.send(ReceiveStock(key, 1, "", 1), key, ids[key], epoch=self.epoch)
        self._client.flush()
        outcomes = self._client.wait_for(set(ids.values()))
        return {key: outcomes[name] for key, name in ids.items()}


@pytest.fixture
def stock(inventory_client: Client) -> Stock:
    return Stock(inventory_client)


def require(stock: Stock, version: int) -> None:
    """Commands fail only for the keys in STOPPING; the other keys are now at this version."""
    outcomes = stock.receive(GOOD, *FOREIGN, *STOPPING)
    for key in (GOOD, *FOREIGN):
        assert (key, outcomes[key].kind, outcomes[key].version) == (key, "accepted", version)
    for key in STOPPING:
        assert (key, outcomes[key].kind, outcomes[key].code) == (key, "failed", "stream_forked")


def delete_state(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([STATE]).values():
        future.result(30)
    wait_until(lambda: STATE in create_topics(bootstrap, {STATE: catalogue()[STATE]}), f"{STATE} is new", 30)


def judge(bootstrap: str, record: LogRecord, key: str) -> None:
    """An operator's decision: this record is foreign."""
    about = dict(record.headers)
    version, event_id = int(about["ce_sequence"] or b""), (about["ce_id"] or b"").decode()
    stream = f"stock/{key}"
    judged = RecordJudged(stream, version, event_id, digest_of(record.value), "foreign", "test", now_micros())
    write_journal(bootstrap, [(stream, judged)])


def openings(bootstrap: str) -> list[tuple[int, int]]:
    """Partition and epoch of each opening, in order."""
    opened = []
    for record in read_to_end(bootstrap, TOPIC, {0: 0, 1: 0}):
        if record.key() == OPENING_KEY.encode():
            opened.append((record.partition(), int(dict(record.headers() or ())["ce_epoch"])))
    return opened


@pytest.fixture
def restarting(start_worker: Callable[..., WorkerProcess]) -> Iterator[Callable[..., WorkerProcess]]:
    """Kills the running worker, if any, and starts the next."""
    running: list[WorkerProcess] = []

    def restart(**settings: object) -> WorkerProcess:
        if running:
            running.pop().end()
        running.append(start_worker("inventory", **settings))
        running[-1].wait_ready()
        return running[-1]

    yield restart


def test_a_record_of_somebody_else_stops_its_own_key_at_most(
    bootstrap: str, restarting: Callable[..., WorkerProcess], stock: Stock
) -> None:
    worker = restarting(snapshot_seconds=3600)
    first = stock.receive(GOOD, *FOREIGN, *STOPPING)
    assert {outcome.version for outcome in first.values()} == {1}
    for key, record in (FOREIGN | STOPPING).items():
        put(bootstrap, key, record)
    time.sleep(1)  # the worker reads its own events within a fetch
    require(stock, 2)

    restarting(snapshot_seconds=3600)  # no snapshot was written yet
    require(stock, 3)
    worker = restarting(snapshot_seconds=0.3)
    time.sleep(2)
    require(stock, 4)
    worker = restarting(snapshot_seconds=0.3)  # from snapshots
    require(stock, 5)
    worker.end()
    delete_state(bootstrap)
    worker = restarting(snapshot_seconds=0.3)
    require(stock, 6)
    names = worker.log.read_text()
    assert names.count('"foreign_record"') == len(FOREIGN)
    assert names.count('"stream_stopped"') == len(STOPPING)

    for key, record in STOPPING.items():
        judge(bootstrap, record, key)
        break
    assert worker.process.wait(30) == EXIT_JUDGED, worker.log.read_text()
    for key, record in list(STOPPING.items())[1:]:
        judge(bootstrap, record, key)
    for restarted in range(2):
        restarting(snapshot_seconds=0.3)
        outcomes = stock.receive(*STOPPING)
        assert {key: (outcome.kind, outcome.version) for key, outcome in outcomes.items()} == dict.fromkeys(
            STOPPING, ("accepted", 2 + restarted)
        )
        time.sleep(1)


def test_a_standby_decides_alike_and_a_promotion_closes_the_epochs_before(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], stock: Stock
) -> None:
    write_role(bootstrap, SiteRole("home", "passive", 1))
    standby = start_worker("inventory")
    standby.wait_ready()
    late, other = event(1, "late"), "other"
    for key, record in (FOREIGN | STOPPING).items():
        stopped = f"standby-{key}"
        about = record.with_header("ce_subject", stopped.encode()) if record.headers else record
        put(bootstrap, stopped, replace(event(1, stopped)))
        put(bootstrap, stopped, replace(about, key=record.key and stopped.encode()))
    write_hold(bootstrap, "takeover", 2)
    write_role(bootstrap, SiteRole("home", "active", 2))
    wait_until(lambda: '"slot_ready"' in standby.log.read_text(), standby.log.read_text, 60)
    lift_hold(bootstrap)
    assert sorted(openings(bootstrap))[-2:] == [(0, 2), (1, 2)]
    put(bootstrap, "late", late)  # a mirror of the lost site might still write it
    time.sleep(1)
    stock.epoch = 2
    outcomes = stock.receive(other, "late", *(f"standby-{key}" for key in STOPPING))
    assert (outcomes[other].version, outcomes["late"].version) == (1, 1), "an event of a closed epoch counted"
    assert {outcomes[f"standby-{key}"].code for key in STOPPING if key != "forged-next"} == {"stream_forked"}
