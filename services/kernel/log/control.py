"""`site.control`: the site's role and epoch, what holds its writers back, each service's slot layout, and the
phase of the inputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from contracts.kafka_address import bootstrap_of
from contracts.kernel.records import (
    CommandInputs,
    SiteAlone,
    SiteHold,
    SiteLease,
    SiteRole,
    SlotLayout,
    StorageBlock,
)
from services.kernel.log import clients
from services.kernel.log.foreign import foreign
from services.kernel.log.reader import NotKnown, read_to_end
from services.kernel.record.codec import Undecodable, decode

Phase: TypeAlias = Literal["commands", "inbox", "closed"]
"""How far a site's workers have moved from writing to the commands to writing to the inbox (ADR 20)."""
TOPIC = "site.control"
ROLE, HOLD, STORAGE, INPUTS = "role", "hold", "storage", "inputs"
ALONE, LEASE = "alone", "lease"
PHASES: Sequence[Phase] = ("commands", "inbox", "closed")


@dataclass
class Control:
    """The newest record of each key. A site that nobody named yet is active in epoch 1."""

    role: SiteRole = field(default_factory=lambda: SiteRole("home", "active", 1))
    block: SiteHold | None = None
    storage: StorageBlock | None = None
    layouts: dict[str, SlotLayout] = field(default_factory=dict)
    inputs: CommandInputs | None = None
    alone_record: SiteAlone | None = None
    lease: SiteLease | None = None
    named: bool = False

    @property
    def phase(self) -> Phase:
        """`commands` until an operator goes on: `./daybook topics inputs`. See `Routing` for what follows."""
        return self.inputs.phase if self.inputs is not None else PHASES[0]

    @property
    def held(self) -> str:
        """The kind of the write block that is in force, else `storage` on a nearly full disk; empty for none.

        A write block of an earlier epoch has no effect. The storage block has its own key: no failover lifts it.
        """
        if self.block is not None and self.block.epoch == self.role.epoch:
            return self.block.kind
        return STORAGE if self.storage is not None else ""

    @property
    def alone(self) -> bool:
        """Whether an operator recorded, in this epoch, that the other site cannot be active."""
        return self.alone_record is not None and self.alone_record.epoch == self.role.epoch

    @property
    def lease_seconds(self) -> int:
        """How long the other site may write after it has read these records; 0: there is no lease."""
        return self.lease.seconds if self.lease is not None else 0

    @property
    def writing(self) -> bool:
        """Whether workers may write: the site is active, and is known to be the only one."""
        return self.role.role == "active" and self.held != "unproven"

    @property
    def taking(self) -> bool:
        """Whether new commands are taken from people."""
        return self.role.role == "active" and not self.held

    def counts(self, epoch: int) -> bool:
        """Whether an API uses outcomes of a worker of this epoch. 0: a worker of an earlier version did not say."""
        return epoch in (0, self.role.epoch)

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
                self.block = record
            case StorageBlock() if name == STORAGE:
                self.storage = record
            case CommandInputs(phase=phase) if name == INPUTS and (
                self.inputs is None or PHASES.index(phase) >= PHASES.index(self.inputs.phase)
            ):
                self.inputs = record
            case SiteAlone() if name == ALONE:
                self.alone_record = record
            case SiteLease() if name == LEASE:
                self.lease = record
            case SlotLayout(service=service) if name == f"layout/{service}" and self._follows(record):
                self.layouts[service] = record
            case _:
                return False
        return True

    def _lift(self, name: str) -> bool:
        if name == HOLD:
            self.block = None
        elif name == STORAGE:
            self.storage = None
        elif name == ALONE:
            self.alone_record = None
        return name in (HOLD, STORAGE, ALONE)

    def _follows(self, layout: SlotLayout) -> bool:
        current = self.layouts.get(layout.service)
        return current is None or abs(layout.number) <= abs(current.number) + 1

    def layout(self, service: str) -> SlotLayout:
        """The service's latest layout; before the first record: number 1, one slot.

        While partitions change their owners its number is negative, and no slot may write.
        """
        return self.layouts.get(service, SlotLayout(service, 1, 1))


def read_control(bootstrap: str) -> Control:
    """The state of `site.control` at this moment."""
    control = Control()
    for record in read_to_end(bootstrap, TOPIC, {0: 0}):
        control.take(record.key(), record.value())
    return control


class ControlSource:
    """Reads the whole topic at each `read`: it has few records, and a rebuilt site starts from the first again.

    After a failure it makes a new client. The old one would wait for ever at a rebuilt broker, whose leader
    epochs start again: the client takes them for outdated.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._start = TopicPartition(TOPIC, 0, OFFSET_BEGINNING)
        self._consumer: Consumer | None = None

    def read(self, seconds: float) -> Control:
        """The site's control records. Raises `NotKnown` where they cannot be read within `seconds`."""
        until = time.monotonic() + seconds
        try:
            if self._consumer is None:
                # a site that was away is seen again soon
                backoff = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
                options = {"fetch.wait.max.ms": 10, "socket.timeout.ms": 5000, "log_level": 0}
                self._consumer = clients.reader(self._bootstrap, backoff | options)
            _, end = self._consumer.get_watermark_offsets(self._start, timeout=seconds)
            if end == 0:
                raise NotKnown(f"{TOPIC} at {bootstrap_of(self._bootstrap)} has no record yet")
            self._consumer.assign([self._start])
            return self._read_to(self._consumer, end, until)
        except NotKnown:
            self.close()
            raise
        except KafkaException as error:
            self.close()
            raise NotKnown(f"{bootstrap_of(self._bootstrap)}: {error.args[0].str()}") from error

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read_to(self, consumer: Consumer, end: int, until: float) -> Control:
        control = Control()
        while time.monotonic() < until:
            for record in consumer.consume(100, 0.1):
                error = record.error()
                if error is None:
                    control.take(record.key(), record.value())
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif record.offset() >= end:
                    return control
        raise NotKnown(f"{TOPIC} at {bootstrap_of(self._bootstrap)} could not be read in time")


class ControlWatch:
    """Follows `site.control` in its own thread: `control` is its newest state, never a half-read one."""

    def __init__(self, bootstrap: str) -> None:
        self.control = read_control(bootstrap)
        self._bootstrap = bootstrap
        threading.Thread(target=self._follow, name="control", daemon=True).start()

    def _follow(self) -> None:
        """Runs as long as the process. While the broker is unreachable, nothing changes."""
        partition, seen = TopicPartition(TOPIC, 0, 0), Control()
        consumer = clients.reader(self._bootstrap, clients.LASTING)
        consumer.assign([partition])
        while True:
            record = consumer.poll(1)
            if record is None:
                continue
            if record.error() is None:
                if not seen.take(record.key(), record.value()):
                    foreign(record, "not_ours")
                # The end that came with the last records: the event for it comes half a second later.
                _, end = consumer.get_watermark_offsets(partition, cached=True)
                whole = record.offset() + 1 >= end
            else:
                whole = record.error().code() == KafkaError._PARTITION_EOF
            if whole:
                self.control = replace(seen, layouts=dict(seen.layouts))


def transactional_ids(service: str, slot: int) -> Sequence[str]:
    """The two ids that a slot's loop uses alternately."""
    return f"{service}-slot-{slot}-a", f"{service}-slot-{slot}-b"


def snapshot_id(service: str, slot: int) -> str:
    """The id under which a slot writes snapshots."""
    return f"{service}-slot-{slot}-snapshots"
