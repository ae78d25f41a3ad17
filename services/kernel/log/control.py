"""`site.control`: the site's role and epoch, what holds its writers back, each service's slot layout, and the
phase of the inputs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from confluent_kafka import KafkaError, TopicPartition

from contracts.kernel.records import CommandInputs, SiteHold, SiteRole, SlotLayout, StorageBlock
from services.kernel.log import clients
from services.kernel.log.foreign import foreign
from services.kernel.log.reader import read_to_end
from services.kernel.log.transactions import Transactions
from services.kernel.record.codec import Undecodable, decode, encode

Phase: TypeAlias = Literal["commands", "inbox", "closed"]
"""How far a site's workers have moved from writing to the commands to writing to the inbox (ADR 20)."""
TOPIC = "site.control"
ROLE, HOLD, STORAGE, INPUTS = "role", "hold", "storage", "inputs"
PHASES: Sequence[Phase] = ("commands", "inbox", "closed")


@dataclass
class Control:
    """The newest record of each key. A site that nobody named yet is active in epoch 1."""

    role: SiteRole = field(default_factory=lambda: SiteRole("home", "active", 1))
    hold: SiteHold | None = None
    storage: StorageBlock | None = None
    layouts: dict[str, SlotLayout] = field(default_factory=dict)
    inputs: CommandInputs | None = None
    named: bool = False

    @property
    def phase(self) -> Phase:
        """`commands` until an operator goes on: `./daybook topics inputs`. See `Routing` for what follows."""
        return self.inputs.phase if self.inputs is not None else PHASES[0]

    @property
    def held(self) -> str:
        """The kind of the hold that is in force, else `storage` on a nearly full disk; empty for none.

        A hold of an earlier epoch means nothing. The storage block has its own key: no failover lifts it.
        """
        if self.hold is not None and self.hold.epoch == self.role.epoch:
            return self.hold.kind
        return STORAGE if self.storage is not None else ""

    @property
    def writing(self) -> bool:
        """Whether workers may write: the site is active, and is known to be the only one."""
        return self.role.role == "active" and self.held != "unproven"

    @property
    def taking(self) -> bool:
        """Whether new commands are taken from people."""
        return self.role.role == "active" and not self.held

    def take(self, key: bytes | None, value: bytes | None) -> bool:
        """One record of the topic; False where it is foreign, and changes nothing.

        An epoch follows the one before it, and so does the number of a layout: a record that jumps ahead was
        written by none of our commands. The first record of a key may have any number.
        """
        name = (key or b"").decode(errors="replace")
        if value is None:
            return self._lift(name)
        try:
            record = decode(value)
        except Undecodable:
            return False
        match record:
            case SiteRole(epoch=epoch) if name == ROLE and (
                not self.named or 0 <= epoch - self.role.epoch <= 1
            ):
                self.role, self.named = record, True
            case SiteHold() if name == HOLD:
                self.hold = record
            case StorageBlock() if name == STORAGE:
                self.storage = record
            case CommandInputs(phase=phase) if name == INPUTS and (
                self.inputs is None or PHASES.index(phase) >= PHASES.index(self.inputs.phase)
            ):
                self.inputs = record
            case SlotLayout(service=service) if name == f"layout/{service}" and self._follows(record):
                self.layouts[service] = record
            case _:
                return False
        return True

    def _lift(self, name: str) -> bool:
        if name == HOLD:
            self.hold = None
        elif name == STORAGE:
            self.storage = None
        return name in (HOLD, STORAGE)

    def _follows(self, layout: SlotLayout) -> bool:
        known = self.layouts.get(layout.service)
        return known is None or abs(layout.number) <= abs(known.number) + 1

    def layout(self, service: str) -> SlotLayout:
        """The service's latest layout; before the first record: number 1, one slot."""
        return self.layouts.get(service, SlotLayout(service, 1, 1))


def read_control(bootstrap: str) -> Control:
    """The state of `site.control` at this moment."""
    control = Control()
    for record in read_to_end(bootstrap, TOPIC, {0: 0}):
        control.take(record.key(), record.value())
    return control


class ControlWatch:
    """Follows `site.control` in a thread of its own: `control` is what it says now, never half-read."""

    def __init__(self, bootstrap: str) -> None:
        self.control = read_control(bootstrap)
        self._bootstrap = bootstrap
        threading.Thread(target=self._follow, name="control", daemon=True).start()

    def _follow(self) -> None:
        """For the process's life; a broker that is away is one that says nothing new."""
        consumer = clients.reader(self._bootstrap, clients.LASTING | {"fetch.wait.max.ms": 100})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        seen = Control()
        while True:
            record = consumer.poll(1)
            if record is None:
                continue
            if (error := record.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self.control = replace(seen, layouts=dict(seen.layouts))
            elif not seen.take(record.key(), record.value()):
                foreign(record, "not_ours")


def transactional_ids(service: str, slot: int) -> Sequence[str]:
    """The two ids that a slot's loop uses in turn."""
    return f"{service}-slot-{slot}-a", f"{service}-slot-{slot}-b"


def snapshot_id(service: str, slot: int) -> str:
    """The id under which a slot writes snapshots."""
    return f"{service}-slot-{slot}-snapshots"


def change_layout(bootstrap: str, service: str, slots: int, timeout_ms: int = 10_000) -> SlotLayout:
    """Share the service's partitions among `slots` slots from now on.

    The record goes first, then every id of the old layout is fenced: a worker of the old layout that comes
    back reads the record after its `init_transactions` and ends; one that is still writing loses its next
    commit.
    """
    old = read_control(bootstrap).layout(service)
    new = SlotLayout(service, old.number + 1, slots)
    producer = clients.writer(bootstrap)
    producer.produce(TOPIC, encode(TOPIC, new), f"layout/{service}", partition=0)
    if producer.flush(30):
        raise TimeoutError(f"{TOPIC} did not take the layout: is the broker up?")
    for slot in range(old.slots):
        ids = [*transactional_ids(service, slot), snapshot_id(service, slot)]
        Transactions(bootstrap, ids, timeout_ms).fence()
    return new
