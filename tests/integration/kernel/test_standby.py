"""A worker on a passive site is a standby; on promotion it starts warm; a later epoch demotes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from contracts.inventory.commands import ReceiveStock
from contracts.inventory.events import StockReceived
from contracts.kernel.records import SiteRole
from infra.base.http import local_http
from infra.base.waiting import wait_until
from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from infra.log.control import lift_hold, stand_down, write_hold, write_role
from services.kernel.exit_codes import EXIT_STOOD_DOWN
from services.kernel.log.control import read_control
from services.kernel.log.transactions import Transactions, produce
from services.kernel.record.codec import encode
from services.kernel.record.envelope import Metadata, now_micros, partition_of, uuid7, write_headers
from tests.integration.kernel.client import Client
from tests.integration.kernel.workers import FIRST_BATCH, WorkerProcess

SKU = "22423"


def status(worker: WorkerProcess) -> dict[str, Any]:
    """The status that it reports; empty while it is not ready, for example between standby and active."""
    try:
        response = local_http().get(f"http://127.0.0.1:{worker.port}/health/ready", timeout=2)
    except httpx.HTTPError:
        return {}
    body: dict[str, Any] = response.json() if response.is_success else {}
    return body


def wait_for_status(worker: WorkerProcess, expected: dict[str, Any], seconds: float = 60) -> None:
    wait_until(
        lambda: status(worker),
        lambda: f"{expected}:\n{worker.log.read_text()}",
        seconds,
        enough=lambda current: expected.items() <= current.items(),
        every=0.02,
    )


def wait_until_folded(worker: WorkerProcess, seconds: float = 60) -> None:
    """Waits until the standby has no lag. Markers after the last event do not count."""
    label = '{service="inventory"}'
    caught_up = {f"daybook_lag_known{label}": 1.0, f"daybook_standby_lag_events{label}": 0.0}
    wait_until(worker.lags, "the standby is caught up", seconds, enough=lambda lags: lags == caught_up)


def receive(client: Client, name: str, **how: Any) -> None:
    client.send(ReceiveStock(SKU, 1, "delivery", 1), SKU, name, **how)
    client.flush()


def mirrored(bootstrap: str, version: int, cause: str) -> None:
    """Writes one event of epoch 1, like the mirror."""
    event = StockReceived(SKU, 1, "delivery", 1)
    metadata = Metadata(
        id=uuid7(),
        type=event.TYPE,
        subject=SKU,
        source="daybook/inventory",
        recorded_at=now_micros(),
        correlation_id=cause,
        causation_id=cause,
        epoch=1,
        version=version,
        request_hash="h",
        transaction=f"{uuid7()}/0/1",
    )
    mirror = Transactions(bootstrap, ["mirror"], 10_000)
    mirror.fence()
    value, where = encode("inventory.events", event), partition_of(SKU, 2)
    mirror.run(
        lambda producer: produce(
            producer, "inventory.events", value, SKU, partition=where, headers=write_headers(metadata)
        ),
        [],
        None,
    )


def test_a_site_is_demoted_stands_by_and_takes_over(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    client = inventory_client
    old = start_worker("inventory")
    wait_for_status(old, {"status": "active", "epoch": 1})
    receive(client, "first")
    receive(client, "refused", expected=7)
    first = client.wait_for({"first", "refused"})

    stand_down(bootstrap, "home", 1)
    assert old.process.wait(30) == EXIT_STOOD_DOWN, old.log.read_text()
    standby = start_worker("inventory")
    wait_for_status(standby, {"status": "standby"})
    receive(client, "of epoch 1")
    mirrored(bootstrap, 2, "crossed")
    wait_until_folded(standby)
    with pytest.raises(TimeoutError):
        client.wait_for({"of epoch 1"}, seconds=2)

    write_hold(bootstrap, "takeover", 2)
    write_role(bootstrap, SiteRole("home", "active", 2))
    wait_for_status(standby, {"status": "active", "epoch": 2})
    lift_hold(bootstrap)
    client.outcomes.clear()
    for name, how in (("first", {}), ("refused", {"expected": 7}), ("crossed", {}), ("new", {})):
        receive(client, name, epoch=2, **how)
    again = client.wait_for({"first", "refused", "crossed", "new"})
    assert [again[name].version for name in ("first", "crossed", "new")] == [1, 2, 3]
    assert again["first"].event_ids == first["first"].event_ids
    assert (again["refused"].kind, again["refused"].version) == ("conflict", first["refused"].version)
    assert all(again[name].replayed for name in ("first", "refused", "crossed"))
    assert "of epoch 1" not in client.latest_outcomes(), "a command of an older epoch woke up"

    receive(client, "of an epoch that never was", epoch=3)
    assert client.wait_for({"of an epoch that never was"})["of an epoch that never was"].kind == "failed"
    write_role(bootstrap, SiteRole("home", "passive", 3))
    assert standby.process.wait(30) == EXIT_STOOD_DOWN, standby.log.read_text()
    assert check(Evidence(read_evidence(bootstrap), client.acknowledged())) == []


def test_a_site_that_is_not_proven_alone_writes_nothing(
    bootstrap: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    epoch = read_control(bootstrap).role.epoch + 1
    write_role(bootstrap, SiteRole("home", "active", epoch))
    write_hold(bootstrap, "unproven", epoch)
    worker = start_worker("inventory")
    wait_for_status(worker, {"status": "standby"})
    lift_hold(bootstrap)
    wait_for_status(worker, {"status": "active", "epoch": epoch})
    write_hold(bootstrap, "unproven", epoch)
    assert worker.process.wait(30) == EXIT_STOOD_DOWN, worker.log.read_text()


def test_a_worker_that_is_fenced_before_it_reads_the_role_is_demoted_too(
    bootstrap: str, start_worker: Callable[..., WorkerProcess], inventory_client: Client
) -> None:
    """A planned switchover does not count as loss of ownership."""
    lift_hold(bootstrap)
    epoch = read_control(bootstrap).role.epoch + 1
    write_role(bootstrap, SiteRole("home", "active", epoch))
    frozen = start_worker("inventory", doom=("send_offsets_to_transaction:after", FIRST_BATCH, "SIGSTOP"))
    wait_for_status(frozen, {"status": "active", "epoch": epoch})
    receive(inventory_client, "in the middle of", epoch=epoch)
    frozen.wait_stopped()
    stand_down(bootstrap, "home", epoch)
    os.kill(frozen.process.pid, signal.SIGCONT)
    assert frozen.process.wait(30) == EXIT_STOOD_DOWN, frozen.log.read_text()
