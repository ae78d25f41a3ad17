"""Shutting a service's writers out while its topics are written anew.

A layout with a negative number is one that no worker is ever started for: whoever comes back reads it after
its `init_transactions`, and ends. Its positive counterpart opens the service again.
"""

from __future__ import annotations

from dataclasses import replace

from contracts.kernel.records import SlotLayout
from infra.log.control import FENCE_TIMEOUT_MS
from services.kernel.log import clients
from services.kernel.log.control import TOPIC, read_control, snapshot_id, transactional_ids
from services.kernel.log.transactions import Transactions
from services.kernel.record.codec import encode

WRITE_SECONDS = 30.0


def closed(bootstrap: str, service: str) -> bool:
    """Whether a change of the service's topics has begun and not ended."""
    return read_control(bootstrap).layout(service).number < 0


def close_layout(bootstrap: str, service: str) -> None:
    """The record first, then every id of every slot is fenced: nobody writes to the service's topics.

    Raises TimeoutError or OwnershipLost; it may be repeated.
    """
    layout = read_control(bootstrap).layout(service)
    _write(bootstrap, replace(layout, number=-abs(layout.number)))
    for slot in range(layout.slots):
        ids = [*transactional_ids(service, slot), snapshot_id(service, slot)]
        Transactions(bootstrap, ids, FENCE_TIMEOUT_MS).fence()


def open_layout(bootstrap: str, service: str) -> None:
    """The workers may come back. Raises TimeoutError."""
    layout = read_control(bootstrap).layout(service)
    _write(bootstrap, replace(layout, number=abs(layout.number)))


def _write(bootstrap: str, layout: SlotLayout) -> None:
    producer = clients.writer(bootstrap)
    producer.produce(TOPIC, encode(TOPIC, layout), f"layout/{layout.service}", partition=0)
    if producer.flush(WRITE_SECONDS):
        raise TimeoutError(f"{TOPIC} did not take the layout: is the broker up?")
