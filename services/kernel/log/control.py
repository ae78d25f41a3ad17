"""The two topics of a site, which have one partition and few records: every process reads them whole and follows them.

`site.control`: the site's role and epoch, what holds its writers back, each service's slot layout, and the phase of the
inputs. `site.journal`: decisions on records of the log, changes of the active site, and operators' acts; mirrored, kept
for ever, written by the active site.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from contracts.kafka_address import bootstrap_of
from contracts.kernel.records import (
    CommandInputs,
    EpochsRecorded,
    LossReport,
    OperatorActed,
    RecordJudged,
    SiteAlone,
    SiteHold,
    SiteLease,
    SiteRole,
    SiteSwitch,
    SlotLayout,
    StorageBlock,
)
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.reader import NotKnown, read_to_end
from services.kernel.log.rule import Journal, Judged, foreign, stream_of
from services.kernel.record.codec import Undecodable, decode, encode

Phase: TypeAlias = Literal["commands", "inbox", "closed"]
"""How far a site's workers have moved from writing to the commands to writing to the inbox (ADR 20)."""
CONTROL, JOURNAL = "site.control", "site.journal"
ROLE, HOLD, STORAGE, INPUTS, ALONE, LEASE = "role", "hold", "storage", "inputs", "alone", "lease"
PHASES: Sequence[Phase] = ("commands", "inbox", "closed")
WRITE_SECONDS, CONNECT_SECONDS = 20.0, 10.0


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
    for record in read_to_end(bootstrap, CONTROL):
        control.take(record.key(), record.value())
    return control


class ControlSource:
    """Reads the whole topic at each `read`: it has few records, and a rebuilt site starts from the first again.

    A client that fails is replaced once it has had time to connect, which is slow on a busy machine: it would wait for
    ever at a rebuilt broker, whose leader epochs start again and seem outdated to it.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._start = TopicPartition(CONTROL, 0, OFFSET_BEGINNING)
        self._consumer: Consumer | None = None
        self._connected_by = 0.0

    def read(self, seconds: float) -> Control:
        """The site's control records. Raises `NotKnown` where they cannot be read within `seconds`."""
        until = time.monotonic() + seconds
        try:
            if self._consumer is None:
                # a site that was away is seen again at once
                options = {"fetch.wait.max.ms": 10, "socket.timeout.ms": 5000, "reconnect.backoff.ms": 50}
                self._consumer = clients.reader(self._bootstrap, options)
                self._connected_by = time.monotonic() + CONNECT_SECONDS
            _, end = self._consumer.get_watermark_offsets(self._start, timeout=seconds)
            if end == 0:
                raise NotKnown(f"{CONTROL} at {bootstrap_of(self._bootstrap)} has no record yet")
            self._consumer.assign([self._start])
            control = self._read_to(self._consumer, end, until)
            self._consumer.unassign()  # at the end of a topic it would fetch a hundred times a second
            return control
        except (NotKnown, KafkaException) as error:
            if time.monotonic() > self._connected_by:
                self.close()
            if isinstance(error, NotKnown):
                raise
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
        raise NotKnown(f"{CONTROL} at {bootstrap_of(self._bootstrap)} could not be read in time")


class ControlWatch:
    """Follows `site.control` in its own thread: `control` is its newest state, never a half-read one."""

    def __init__(self, bootstrap: str) -> None:
        self.control = read_control(bootstrap)
        self._bootstrap = bootstrap
        threading.Thread(target=self._follow, name="control", daemon=True).start()

    def _follow(self) -> None:
        seen = Control()
        for record, whole in _followed(self._bootstrap, CONTROL):
            if record is not None and not seen.take(record.key(), record.value()):
                foreign(record, "not_ours")
            if whole:
                self.control = replace(seen, layouts=dict(seen.layouts))


def _followed(bootstrap: str, topic: str) -> Iterator[tuple[Message | None, bool]]:
    """The records of a site's topic from the first one on, for the process's life, each with whether the topic has no
    more at this moment; without a record where only that is new. While the broker is unreachable, nothing comes."""
    partition = TopicPartition(topic, 0, 0)
    consumer = clients.reader(bootstrap)
    consumer.assign([partition])
    while True:
        record = consumer.poll(1)
        if record is None:
            continue
        if record.error() is None:
            # The end that came with the last records: the event for it comes half a second later.
            _, end = consumer.get_watermark_offsets(partition, cached=True)
            yield record, record.offset() + 1 >= end
        elif record.error().code() == KafkaError._PARTITION_EOF:
            yield None, True


def with_record(journal: Journal, value: bytes | None) -> Journal:
    """The journal with one more record. What is not a decision of ours changes nothing: a foreign record here
    must not stop a reader."""
    try:
        match decode(value):
            case RecordJudged() as judged:
                return with_judgement(journal, judged)
            case EpochsRecorded(topic=topic, epochs=epochs):
                return replace(journal, epochs={**journal.epochs, topic: frozenset(epochs)})
            case _:
                return journal
    except Undecodable:
        return journal


def with_judgement(journal: Journal, judged: RecordJudged) -> Journal:
    """The journal with one more decision."""
    about = Judged(judged.stream, judged.version, judged.event_id, judged.digest)
    number = journal.count + 1
    return replace(
        journal,
        verdicts={**journal.verdicts, about: judged.verdict},
        streams={**journal.streams, judged.stream: number},
        count=number,
    )


def read_journal(bootstrap: str) -> Journal:
    """The decisions that are recorded at this moment."""
    journal = Journal()
    for record in read_to_end(bootstrap, JOURNAL):
        journal = with_record(journal, record.value())
    return journal


class JournalWatch:
    """Follows `site.journal` in its own thread: `journal` is its newest state, never a half-read one."""

    def __init__(self, bootstrap: str) -> None:
        self.journal = read_journal(bootstrap)
        self._bootstrap = bootstrap
        self._looked_at: Journal | None = None
        threading.Thread(target=self._follow, name="journal", daemon=True).start()

    def news(self, honoured: Journal, topic: str) -> bool:
        """Whether there is a decision on records of an events topic that `honoured` does not contain."""
        now = self.journal
        if now is self._looked_at:
            return False
        self._looked_at, streams = now, stream_of(topic, "")
        return now.epochs.get(topic) != honoured.epochs.get(topic) or any(
            about.stream.startswith(streams) and honoured.verdicts.get(about) != verdict
            for about, verdict in now.verdicts.items()
        )

    def _follow(self) -> None:
        seen = Journal()
        for record, whole in _followed(self._bootstrap, JOURNAL):
            if record is not None:
                seen = with_record(seen, record.value())
            if whole:
                self.journal = seen


def write_journal(
    bootstrap: str,
    records: Iterable[tuple[str, RecordJudged | EpochsRecorded | SiteSwitch | LossReport | OperatorActed]],
) -> None:
    """Append records (key and value). Raises TimeoutError where the broker does not take them."""
    producer = clients.writer(bootstrap, {"message.timeout.ms": int(WRITE_SECONDS * 1000)})
    new = (NewRecord(JOURNAL, key, encode(JOURNAL, record), 0) for key, record in records)
    deliver(producer, new, WRITE_SECONDS + 1)


def transactional_ids(service: str, slot: int) -> Sequence[str]:
    """The two ids that a slot's loop uses alternately."""
    return f"{service}-slot-{slot}-a", f"{service}-slot-{slot}-b"


def snapshot_id(service: str, slot: int) -> str:
    """The id under which a slot writes snapshots."""
    return f"{service}-slot-{slot}-snapshots"
