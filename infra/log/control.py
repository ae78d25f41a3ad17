"""`site.control` of a site: writing the role, the write block, a full disk; reading a site that may be silent.

Every writing function takes the address of the site's broker, beside it or through its link, and raises
TimeoutError where the broker does not take the record.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from confluent_kafka import TopicPartition

from contracts.kernel.records import (
    CommandInputs,
    HoldKind,
    InputPhase,
    SiteAlone,
    SiteHold,
    SiteLease,
    SiteRole,
    SlotLayout,
    StorageBlock,
)
from contracts.topics import INPUTS as COMMAND_INPUTS
from contracts.topics import TOPICS
from infra.base.errors import DaybookError
from infra.log.topics import SERVICES
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.completion import Unsettled, settle, slot_partitions
from services.kernel.log.control import (
    ALONE,
    CONTROL,
    HOLD,
    INPUTS,
    LEASE,
    ROLE,
    STORAGE,
    Control,
    ControlSource,
    read_control,
    snapshot_id,
    transactional_ids,
)
from services.kernel.log.reader import NotKnown, commands_consumer, partitions_by_topic
from services.kernel.log.transactions import Transactions
from services.kernel.record.codec import encode
from services.kernel.record.envelope import now_micros

WRITE_SECONDS = 20.0
# A lost site is silent: what replaces it must not wait long. What needs both sites waits for one that is busy.
READ_SECONDS, PATIENT_SECONDS = 2.0, 8.0
FENCE_TIMEOUT_MS = 10_000


def write_role(bootstrap: str, role: SiteRole) -> None:
    """Give the site this role and epoch. A reader takes no record that skips an epoch: in those of switches that were
    begun and not finished, the site was passive."""
    own = read_control(bootstrap)
    skipped = range(own.role.epoch + 1, role.epoch) if own.named else ()
    for written in (*(SiteRole(role.site, "passive", epoch) for epoch in skipped), role):
        _write(bootstrap, ROLE, encode(CONTROL, written))


def write_hold(bootstrap: str, kind: HoldKind, epoch: int) -> None:
    """Block writes at the site, in this epoch."""
    _write(bootstrap, HOLD, encode(CONTROL, SiteHold(kind, epoch, now_micros())))


def lift_hold(bootstrap: str) -> None:
    """Remove the write block."""
    _write(bootstrap, HOLD, None)


def write_alone(bootstrap: str, epoch: int) -> None:
    """Record that the other site cannot be active in this epoch: the site writes without proof until it sees it."""
    _write(bootstrap, ALONE, encode(CONTROL, SiteAlone(epoch, now_micros())))


def lift_alone(bootstrap: str) -> None:
    """The sites see each other again: from now on the site needs proof."""
    _write(bootstrap, ALONE, None)


def write_lease(bootstrap: str, seconds: int) -> None:
    """Let the other site write for so long after it has read this; 0: there is no lease."""
    _write(bootstrap, LEASE, encode(CONTROL, SiteLease(seconds, now_micros())))


def write_inputs(bootstrap: str, phase: InputPhase) -> None:
    """Move the site's inputs to this phase (ADR 20)."""
    _write(bootstrap, INPUTS, encode(CONTROL, CommandInputs(phase, now_micros())))


def write_storage_block(bootstrap: str, folder: str, free_bytes: int, seconds: float = WRITE_SECONDS) -> None:
    """Refuse new commands: the disk of `folder` is nearly full."""
    _write(bootstrap, STORAGE, encode(CONTROL, StorageBlock(folder, free_bytes, now_micros())), seconds)


def lift_storage_block(bootstrap: str, seconds: float = WRITE_SECONDS) -> None:
    """Accept commands again: the disk has room."""
    _write(bootstrap, STORAGE, None, seconds)


def stand_down(bootstrap: str, site: str, epoch: int) -> None:
    """Make the site passive as of `epoch`. After the return none of its workers can acknowledge a command.

    The record goes first, then every slot id is fenced: a worker that starts again reads the record after its
    `init_transactions`; one that still writes fails at its next commit. Raises OwnershipLost where the broker
    fails in between: repeat it.
    """
    write_role(bootstrap, SiteRole(site, "passive", epoch))
    fence_slots(bootstrap)


def fence_slots(bootstrap: str) -> None:
    """Fence the writer of each of the site's slots, and end its open transaction."""
    _fence(bootstrap, *map(read_control(bootstrap).layout, SERVICES))


def change_layout(bootstrap: str, service: str, slots: int) -> SlotLayout:
    """Share the service's partitions among `slots` slots from now on. Only one process may do this at a time.

    No new owner begins before every old one is shut out: the old layout is closed first. After an interruption the
    same call continues. Raises TimeoutError or OwnershipLost.
    """
    closed = close_layout(bootstrap, service)
    _settle(bootstrap, closed)
    return _write_layout(bootstrap, SlotLayout(service, abs(closed.number) + 1, slots))


def close_layout(bootstrap: str, service: str) -> SlotLayout:
    """Close the layout, then fence every id of every slot: no worker can write to the service's topics.

    The number of a closed layout is negative. A worker that starts reads it after its `init_transactions`, and
    waits; one that still writes loses its next commit. Raises like `change_layout`; it may be repeated.
    """
    layout = read_control(bootstrap).layout(service)
    closed = _write_layout(bootstrap, replace(layout, number=-abs(layout.number)))
    _fence(bootstrap, closed)
    return closed


def open_layout(bootstrap: str, service: str) -> None:
    """Let the workers of a closed layout start again. Raises TimeoutError."""
    layout = read_control(bootstrap).layout(service)
    _write_layout(bootstrap, replace(layout, number=abs(layout.number)))


def _fence(bootstrap: str, *layouts: SlotLayout) -> None:
    """Eight at a time: to connect takes longer than to fence."""
    slots = [(layout.service, slot) for layout in layouts for slot in range(layout.slots)]
    ids = [own for slot in slots for own in (*transactional_ids(*slot), snapshot_id(*slot))]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda own: Transactions(bootstrap, [own], FENCE_TIMEOUT_MS).fence(), ids))


def _settle(bootstrap: str, layout: SlotLayout) -> None:
    """End what the slots left undecided: no worker starts again with these ids and these partitions (ADR 9)."""
    topics, existing = TOPICS[layout.service], partitions_by_topic(bootstrap)
    consumed = [TopicPartition(topic, number, 0) for topic in topics.inputs for number in existing[topic]]
    with commands_consumer(bootstrap, f"{layout.service}-workers") as consumer:
        reads = {"offsets": consumed, "group": consumer.consumer_group_metadata()}
        slots = [slot._replace(**reads) for slot in fenced_slots(bootstrap, layout, existing)]
        settle(bootstrap, slots, read_control(bootstrap).role.epoch)


def fenced_slots(
    bootstrap: str, layout: SlotLayout, existing: Mapping[str, list[int]]
) -> Iterator[Unsettled]:
    """Fence each slot's writer: what it left is to be settled. `existing` are the partitions of each topic; a site that
    was lost before its upgrade has no inbox."""
    own = TOPICS[layout.service]
    written = [(topic, n) for topic in sorted({*own, *COMMAND_INPUTS}) for n in existing.get(topic, ())]
    for slot in range(layout.slots):
        transactions = Transactions(bootstrap, transactional_ids(layout.service, slot), FENCE_TIMEOUT_MS)
        transactions.fence()
        numbers = slot_partitions(existing[own.events], slot, layout.slots)
        yield Unsettled(transactions, layout.service, numbers, written, [], None)


def _write_layout(bootstrap: str, layout: SlotLayout) -> SlotLayout:
    record = NewRecord(CONTROL, f"layout/{layout.service}", encode(CONTROL, layout), 0)
    deliver(clients.writer(bootstrap), [record], WRITE_SECONDS)
    return layout


def _write(bootstrap: str, key: str, value: bytes | None, seconds: float = WRITE_SECONDS) -> None:
    options = {
        # idempotence would wait half a second for an id, and a repeated record changes nothing
        "enable.idempotence": False,
        "message.timeout.ms": int(seconds * 1000),
    }
    deliver(clients.writer(bootstrap, options), [NewRecord(CONTROL, key, value, 0)], seconds + 1)


class Address(NamedTuple):
    """A site as one side sees it: its name, and the `host:port` of its broker for that side."""

    name: str
    bootstrap: str


class SiteSilent(DaybookError, TimeoutError):
    """The site's broker does not respond, or has no `site.control` yet."""


def read_site(bootstrap: str, seconds: float = READ_SECONDS) -> Control:
    """The site's control records, read once. Raises SiteSilent where they cannot be read within `seconds`."""
    with closing(ControlSource(bootstrap)) as source:
        try:
            return source.read(seconds)
        except NotKnown as error:
            raise SiteSilent(str(error)) from error
