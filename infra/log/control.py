"""Writing `site.control`: the role, what holds writers back, a full disk, and standing down.

Every function takes the address of the site's broker, from beside it or through its link. All raise
TimeoutError where the broker does not take the record.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from contracts.kernel.records import CommandInputs, HoldKind, InputPhase, SiteHold, SiteRole, StorageBlock
from contracts.topics import TOPICS
from services.kernel.log import clients
from services.kernel.log.control import (
    HOLD,
    INPUTS,
    ROLE,
    STORAGE,
    TOPIC,
    read_control,
    snapshot_id,
    transactional_ids,
)
from services.kernel.log.transactions import Transactions
from services.kernel.record.codec import encode
from services.kernel.record.envelope import now_micros

SERVICES = tuple(TOPICS)
WRITE_SECONDS = 20.0
FENCE_TIMEOUT_MS = 10_000


def write_role(bootstrap: str, role: SiteRole) -> None:
    """From now on the site has this role and epoch."""
    _write(bootstrap, ROLE, encode(TOPIC, role))


def write_hold(bootstrap: str, kind: HoldKind, epoch: int) -> None:
    """Hold the site's writers back, in this epoch."""
    _write(bootstrap, HOLD, encode(TOPIC, SiteHold(kind, epoch, now_micros())))


def lift_hold(bootstrap: str) -> None:
    """Nothing holds the site's writers back any more."""
    _write(bootstrap, HOLD, None)


def write_inputs(bootstrap: str, phase: InputPhase) -> None:
    """From now on the site's inputs are in this phase (ADR 20)."""
    _write(bootstrap, INPUTS, encode(TOPIC, CommandInputs(phase, now_micros())))


def write_storage_block(bootstrap: str, folder: str, free_bytes: int, seconds: float = WRITE_SECONDS) -> None:
    """The site refuses new commands: the disk of `folder` is nearly full."""
    _write(bootstrap, STORAGE, encode(TOPIC, StorageBlock(folder, free_bytes, now_micros())), seconds)


def lift_storage_block(bootstrap: str, seconds: float = WRITE_SECONDS) -> None:
    """The disk has room again."""
    _write(bootstrap, STORAGE, None, seconds)


def stand_down(bootstrap: str, site: str, epoch: int) -> None:
    """The site is passive as of `epoch`, and after the return none of its workers can acknowledge a command.

    The record goes first, then every slot id is fenced: a worker that comes back reads the record after its
    `init_transactions`; one that is still writing loses its next commit. Raises OwnershipLost where the
    broker goes away in between: repeat it.
    """
    write_role(bootstrap, SiteRole(site, "passive", epoch))
    fence_slots(bootstrap)


def fence_slots(bootstrap: str) -> None:
    """Shut out whoever writes as one of the site's slots, and end what it has open."""
    control = read_control(bootstrap)
    for service in SERVICES:
        for slot in range(control.layout(service).slots):
            ids = [*transactional_ids(service, slot), snapshot_id(service, slot)]
            Transactions(bootstrap, ids, FENCE_TIMEOUT_MS).fence()


def _write(bootstrap: str, key: str, value: bytes | None, seconds: float = WRITE_SECONDS) -> None:
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = clients.writer(
        bootstrap,
        {
            "enable.idempotence": False,
            # not idempotent: that waits half a second for an id, and the same record twice is the same
            "message.timeout.ms": int(seconds * 1000),
            "log_level": 0,
        },
    )
    producer.produce(TOPIC, value, key, partition=0, on_delivery=delivered)
    if producer.flush(seconds + 1) or refused:
        reason = f": {refused[0].str()}" if refused else ""
        raise TimeoutError(f"{TOPIC} at {bootstrap} did not take the record {key}{reason}")
