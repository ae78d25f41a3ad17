"""Generated from the schemas and topics.yaml by `daybook contracts lock`; do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

OutcomeKind: TypeAlias = Literal["accepted", "refused", "conflict", "failed"]

Role: TypeAlias = Literal["active", "passive"]

HoldKind: TypeAlias = Literal["quiesced", "unproven", "takeover"]

InputPhase: TypeAlias = Literal["inbox", "closed"]

RecordVerdict: TypeAlias = Literal["foreign", "genuine", "suspect"]

SwitchKind: TypeAlias = Literal["planned", "unplanned"]

SwitchStep: TypeAlias = Literal[
    "begun", "stopped", "promoted", "aborted", "reported", "reconciled", "rebuilt", "returned"
]

ActOutcome: TypeAlias = Literal["done", "failed"]


@dataclass(frozen=True)
class EpochOpened:
    """Opens a write epoch in a partition of an events topic; a log begins in epoch 1. Key: #epoch."""

    TYPE: ClassVar[str] = "daybook.kernel.EpochOpened"

    epoch: int
    site: str  # The site that writes from here on.
    opened_at: int  # (Micros.)


@dataclass(frozen=True)
class Outcome:
    """What became of one command."""

    TYPE: ClassVar[str] = "daybook.kernel.Outcome"

    command_id: str
    command_type: str  # Full record name of the command.
    subject: str  # The entity that answered.
    tag: str  # The asker's own mark, given back as it came.
    kind: OutcomeKind
    # Accepted: after the command; otherwise the entity's current version (0: it does not exist).
    version: int
    event_ids: tuple[str, ...]
    status: str  # The entity's status in one word, after the command.
    code: str  # Stable code of a refusal; empty when accepted.
    reason: str
    request_hash: str  # Fingerprint of the HTTP request; empty inside conversations.
    replayed: bool  # Whether this is the remembered answer to a repeated command.
    epoch: int = 0  # The write epoch of its last event, else the epoch in which it was decided; 0: not known.


@dataclass(frozen=True)
class OutcomeBatch:
    """Outcomes of one transaction for one reply address."""

    TYPE: ClassVar[str] = "daybook.kernel.OutcomeBatch"

    outcomes: tuple[Outcome, ...]
    epoch: int = 0  # The write epoch of the worker that sends them; 0: not known.


@dataclass(frozen=True)
class InboxMessage:
    """A command or outcomes for one entity."""

    TYPE: ClassVar[str] = "daybook.kernel.InboxMessage"

    id: str
    subject: str  # The entity: the key of this message.
    tag: str  # The sender's own mark, given back with the outcome.
    value: bytes  # The content as the value of a record of this topic: framed, with its own schema id.


@dataclass(frozen=True)
class InboxGroup:
    """Messages of one type that one cause sends."""

    TYPE: ClassVar[str] = "daybook.kernel.InboxGroup"

    type: str  # Full record name of each message's content.
    correlation_id: str
    causation_id: str  # Empty: each message is its own cause.
    traceparent: str  # Empty where there is no trace.
    reply_topic: str  # The inbox to which outcomes go; empty: none is wanted.
    reply_key: str  # The entity that gets the outcomes.
    messages: tuple[InboxMessage, ...]


@dataclass(frozen=True)
class InboxBatch:
    """What one transaction sends to one partition of an inbox. The record has no key; each message has its own."""

    TYPE: ClassVar[str] = "daybook.kernel.InboxBatch"

    groups: tuple[InboxGroup, ...]


@dataclass(frozen=True)
class Answer:
    """An outcome that left no event, remembered for the retry window. Key: the entity."""

    TYPE: ClassVar[str] = "daybook.kernel.Answer"

    outcome: Outcome
    recorded_at: int  # (Micros.)


@dataclass(frozen=True)
class Remembered:
    """An answer inside the retry window."""

    TYPE: ClassVar[str] = "daybook.kernel.Remembered"

    outcome: Outcome
    recorded_at: int  # (Micros.)


@dataclass(frozen=True)
class Snapshot:
    """A cached fold of one entity. Key: the entity."""

    TYPE: ClassVar[str] = "daybook.kernel.Snapshot"

    format: str  # Fingerprint of the state's shape; another format is discarded.
    version: int
    recorded_at: int  # Of the last event folded. (Micros.)
    state: bytes  # MessagePack, private to the service.
    answers: tuple[Remembered, ...]
    read_to: int = 0  # Every event of the entity before this offset was read back from the log.
    unread: int = 0  # How many of the entity's last events were not read back yet.


@dataclass(frozen=True)
class Watermark:
    """Every change before these offsets is in a snapshot of this partition."""

    TYPE: ClassVar[str] = "daybook.kernel.Watermark"

    events: int
    answers: int
    epoch: int = 0  # The write epoch that is open at `events`; 0: not known, the watermark cannot be used.
    judged: int = 0  # How many decisions on records the snapshots honour.


@dataclass(frozen=True)
class Header:
    """One header as it stood."""

    TYPE: ClassVar[str] = "daybook.kernel.Header"

    name: str
    value: bytes


@dataclass(frozen=True)
class ParkedCommand:
    """A command that could not be executed. Key: topic/partition/offset."""

    TYPE: ClassVar[str] = "daybook.kernel.ParkedCommand"

    topic: str
    partition: int
    offset: int
    reason: str
    key: bytes
    value: bytes
    headers: tuple[Header, ...]
    recorded_at: int  # (Micros.)


@dataclass(frozen=True)
class SiteRole:
    """The site's role. Key: role."""

    TYPE: ClassVar[str] = "daybook.kernel.SiteRole"

    site: str
    role: Role
    epoch: int  # The write epoch; a promotion raises it.


@dataclass(frozen=True)
class SiteHold:
    """What holds the site's writers back. Key: hold; a tombstone lifts it."""

    TYPE: ClassVar[str] = "daybook.kernel.SiteHold"

    kind: HoldKind  # Quiesced, takeover: no new requests; unproven: nobody writes.
    epoch: int  # The write epoch that it belongs to; in a later one it means nothing.
    since: int  # (Micros.)


@dataclass(frozen=True)
class StorageBlock:
    """The site refuses new commands because its disk is nearly full. Key: storage; a tombstone lifts it."""

    TYPE: ClassVar[str] = "daybook.kernel.StorageBlock"

    folder: str  # The folder whose disk is nearly full.
    free_bytes: int  # What was free when the block was written.
    since: int  # (Micros.)


@dataclass(frozen=True)
class SlotLayout:
    """How a service's partitions are shared among its slots. Key: layout/<service>."""

    TYPE: ClassVar[str] = "daybook.kernel.SlotLayout"

    service: str
    number: int  # Counts up with every change.
    slots: int


@dataclass(frozen=True)
class CommandInputs:
    """How far the site's workers have moved to the inbox (ADR 20). Key: inputs."""

    TYPE: ClassVar[str] = "daybook.kernel.CommandInputs"

    # inbox: workers write to the inbox. closed: commands of workers are parked on the command topics.
    phase: InputPhase
    recorded_at: int  # Microseconds since 1970, UTC. (Micros.)


@dataclass(frozen=True)
class SiteAlone:
    """The other site cannot be active: this one needs no proof from it. Key: alone; a tombstone ends it."""

    TYPE: ClassVar[str] = "daybook.kernel.SiteAlone"

    epoch: int  # The write epoch that it belongs to; in a later one it means nothing.
    since: int  # (Micros.)


@dataclass(frozen=True)
class SiteLease:
    """How long the other site may write after it has read this record. Key: lease."""

    TYPE: ClassVar[str] = "daybook.kernel.SiteLease"

    seconds: int  # A promotion of this site waits for so long; 0: there is no lease.
    since: int  # (Micros.)


@dataclass(frozen=True)
class Canary:
    """Sent by the active site to tell how long the mirror takes. Key: the site."""

    TYPE: ClassVar[str] = "daybook.kernel.Canary"

    site: str
    epoch: int
    sent_at: int  # (Micros.)


@dataclass(frozen=True)
class LossReissued:
    """A command lost in a failover was sent again under its old id."""

    TYPE: ClassVar[str] = "daybook.kernel.LossReissued"

    command_id: str  # The acknowledged command that did not cross; also the record's key.
    command_type: str  # Full record name.
    subject: str  # The order or SKU.
    lost_epoch: int  # The epoch that acknowledged it.
    outcome: str  # What became of it: accepted, refused, conflict or failed.
    code: str  # Of a refusal; else empty.
    decided_at: int  # (Micros.)


@dataclass(frozen=True)
class LossWrittenOff:
    """A command lost in a failover is given up."""

    TYPE: ClassVar[str] = "daybook.kernel.LossWrittenOff"

    command_id: str  # The acknowledged command that did not cross; also the record's key.
    command_type: str  # Full record name.
    subject: str  # The order or SKU.
    lost_epoch: int  # The epoch that acknowledged it.
    reason: str
    decided_at: int  # (Micros.)


@dataclass(frozen=True)
class RecordJudged:
    """A decision on one record of a stream; of one record the last decision counts. Key: the stream."""

    TYPE: ClassVar[str] = "daybook.kernel.RecordJudged"

    stream: str  # order/<order id> or stock/<SKU>.
    version: int
    event_id: str
    digest: str  # SHA-256 of the record's value, in hexadecimal digits.
    # Foreign: skipped. Genuine: counts once. Suspect: not written by the stream's owner; stops the stream.
    verdict: RecordVerdict
    reason: str
    judged_at: int  # (Micros.)


@dataclass(frozen=True)
class EpochsRecorded:
    """The write epochs that a log held before epochs were opened by records. Key: the topic."""

    TYPE: ClassVar[str] = "daybook.kernel.EpochsRecorded"

    topic: str
    epochs: tuple[int, ...]
    recorded_at: int  # (Micros.)


@dataclass(frozen=True)
class PartitionEnd:
    """Where the mirrored part of a partition ends."""

    TYPE: ClassVar[str] = "daybook.kernel.PartitionEnd"

    topic: str
    partition: int
    offset: int  # Of the last record at the target before its own writes; -1: none.


@dataclass(frozen=True)
class SiteSwitch:
    """A step of a change of the active site, or after the loss of one. Key: switch/<epoch>."""

    TYPE: ClassVar[str] = "daybook.kernel.SiteSwitch"

    epoch: int  # The epoch that the change opens.
    kind: SwitchKind
    source: str  # The site that was active; unplanned: the lost one.
    target: str  # The site that becomes active.
    # What is done: stopped = the mirror, with its ends; rebuilt = the lost site is a copy again.
    step: SwitchStep
    ends: tuple[PartitionEnd, ...]  # Of every mirrored partition; before the mirror is stopped none.
    recorded_at: int  # (Micros.)


@dataclass(frozen=True)
class LossReport:
    """A part of the report of what a lost site acknowledged alone. Key: report/<epoch>."""

    TYPE: ClassVar[str] = "daybook.kernel.LossReport"

    epoch: int  # The epoch that the failover opened.
    part: int  # From 0.
    parts: int  # How many make the report.
    content: bytes  # A piece of the report, as JSON, compressed by zlib.
    recorded_at: int  # (Micros.)


@dataclass(frozen=True)
class OperatorActed:
    """What an operator did, and how it ended. Key: act/<who>."""

    TYPE: ClassVar[str] = "daybook.kernel.OperatorActed"

    who: str  # The operator's random id, never a name.
    act: str  # The command: parked retry, scale, failover ...
    subject: str  # What it was done to: a position, a stream, a site, a process.
    why: str  # In the operator's words; may be empty. Kept for ever: no personal data.
    outcome: ActOutcome
    acted_at: int  # When it ended. (Micros.)
