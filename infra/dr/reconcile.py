"""After a failover, for each acknowledged command that was not mirrored: send it again, or write it off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec
from confluent_kafka import Message, TopicPartition

from contracts.kernel.records import LossReissued, LossWrittenOff, Outcome, OutcomeBatch
from contracts.topics import TOPICS
from infra.base.errors import DaybookError, NotDone
from infra.base.files import write_whole
from infra.dr.losses import Loss, LostRequest, Report
from infra.log.event_log import EVENT_TOPICS, event_in_any_epoch
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.control import read_control
from services.kernel.log.reader import high_watermarks, partitions_of, read_to_end
from services.kernel.record.codec import decode, encode, sound
from services.kernel.record.envelope import ReplyAddress, now_micros, sent_again

TOPIC = "site.reconciliation"
OUTCOME_SECONDS = 60.0
DELIVERY_SECONDS = 30

Decision: TypeAlias = LossReissued | LossWrittenOff
# How long a command waits until the part of the conversation before it is in the stream.
STREAM_SECONDS = 5.0


class NoOutcome(DaybookError, TimeoutError):
    """A command that was sent again has no outcome yet; it may still be executed, once."""


@dataclass(frozen=True)
class ReconStanding:
    """A lost command and its state.

    `state` is `open`, `reissued`, `written off`, `done again` (a client repeated it at the new site) or
    `no promise` (it was refused, or belongs to a conversation, which continues by itself).
    """

    loss: Loss
    state: str
    decision: Decision | None = None


def save(report: Report, file: Path) -> None:
    """Store a report: the old log may be gone when the last entry is decided."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def load(file: Path) -> Report:
    """Raises OSError or msgspec.ValidationError."""
    return msgspec.json.decode(file.read_bytes(), type=Report)


def standings(bootstrap: str, report: Report) -> list[ReconStanding]:
    """Every entry of the report, oldest first, with its decision at the new active site."""
    decided = decisions(bootstrap)
    return [_standing(loss, decided.get(loss.command_id)) for loss in report.losses]


def chosen(entries: Iterable[ReconStanding], ids: Sequence[str]) -> list[ReconStanding]:
    """The entries with these command ids, which can be abbreviated. Raises NotDone."""
    entries, selected = list(entries), []
    for prefix in ids:
        matching = [entry for entry in entries if entry.loss.command_id.startswith(prefix)]
        if len(matching) != 1:
            raise NotDone(f"{prefix} names {len(matching)} entries of the report")
        selected += matching
    return selected


def reissue(
    bootstrap: str,
    report: Report,
    entries: Sequence[ReconStanding],
    operator: str,
    progress: Callable[[ReconStanding], None],
) -> list[ReconStanding]:
    """Send commands again under their old ids, in their old order, one at a time, and record the outcomes. They name
    their principal as before, and the `operator`.

    A command that is sent twice is executed once. Raises `NotDone`, `NoOutcome` or TimeoutError; what was
    decided before stays decided.
    """
    control = read_control(bootstrap)
    if not control.taking:
        raise NotDone(
            f"the site {control.role.site} does not take commands ({control.held or control.role.role})"
        )
    for entry in entries:
        _check(entry)
    done = []
    with Desk(bootstrap, _streams(report), report.continued) as desk:
        for entry in sorted(entries, key=lambda entry: (entry.loss.at, entry.loss.version)):
            done.append(_reissue(desk, entry.loss, control.role.epoch, operator))
            progress(done[-1])
    return done


def write_off(
    bootstrap: str, report: Report, entries: Sequence[ReconStanding], reason: str
) -> list[ReconStanding]:
    """Drop commands. Raises NotDone for one that is not open, also since its client has repeated it, TimeoutError."""
    repeated, done = _repeated(bootstrap, report), []
    for entry in entries:
        loss = entry.loss
        if entry.state != "open":
            raise NotDone(f"{loss.command_id} is not open: {entry.state}")
        if loss.command_id in repeated:
            raise NotDone(
                f"{loss.command_id} is not open: its client has repeated it since the report was made"
            )
        about = loss.command_id, loss.command_type, loss.subject, loss.epoch
        done.append(ReconStanding(loss, "written off", LossWrittenOff(*about, reason, now_micros())))
    with Desk(bootstrap, {}, {}) as desk:
        desk.write([entry.decision for entry in done if entry.decision is not None])
    return done


def _repeated(bootstrap: str, report: Report) -> set[str]:
    """The commands that the new site has executed, also since the report: clients repeat theirs at any time."""
    repeated = set[str]()
    for topic in EVENT_TOPICS:
        numbers = partitions_of(bootstrap, topic)
        starts = {number: report.continued.get(f"{topic}/{number}", 0) for number in numbers}
        for record in read_to_end(bootstrap, topic, starts):
            if (event := event_in_any_epoch(record, len(numbers))) is not None:
                repeated.add(event.causation_id)
    return repeated


def _standing(loss: Loss, decision: Decision | None) -> ReconStanding:
    match decision:
        case LossReissued():
            return ReconStanding(loss, "reissued", decision)
        case LossWrittenOff():
            return ReconStanding(loss, "written off", decision)
        case None if not loss.acknowledged or loss.outcome != "accepted":
            return ReconStanding(loss, "no promise")
        case None:
            return ReconStanding(loss, "done again" if loss.again else "open")


def _check(entry: ReconStanding) -> None:
    loss = entry.loss
    if entry.state == "written off":
        raise NotDone(f"{loss.command_id} is written off already")
    if loss.outcome != "accepted":
        raise NotDone(f"{loss.command_id} was {loss.outcome}: its client was promised nothing")
    if not loss.acknowledged:
        raise NotDone(f"{loss.command_id} is part of a conversation, which goes on by itself")
    if loss.request is None:
        raise NotDone(f"{loss.command_id} is no longer in the old site's commands: write it off")


def _reissue(desk: Desk, loss: Loss, epoch: int, operator: str) -> ReconStanding:
    """Wait until the order has exchanged with its stock what came before the command: earlier it is refused.

    A delivery or a correction of stock depends on nothing before it, and its stream continues differently now.
    """
    if loss.request is None:
        raise NotDone(f"{loss.command_id} has no command")
    if loss.service == "order":
        desk.await_version("order.events", loss.subject, loss.version, STREAM_SECONDS)
    request = replace(loss.request, headers=tuple(sent_again(loss.request.headers, operator)))
    outcome = desk.send(loss.service, request, epoch)
    about = loss.command_id, loss.command_type, loss.subject, loss.epoch
    decision = LossReissued(*about, outcome.kind, outcome.code, now_micros())
    desk.write([decision])
    return ReconStanding(loss, "reissued", decision)


def _streams(report: Report) -> dict[tuple[str, str], int]:
    """The versions that the streams with lost events had at the cut."""
    versions: dict[tuple[str, str], int] = {}
    for loss in report.losses:
        if loss.events:
            stream = TOPICS[loss.service].events, loss.subject
            versions[stream] = min(versions.get(stream, loss.version), loss.version)
    return versions


def decisions(bootstrap: str) -> dict[str, Decision]:
    """The newest decision about each command, by its id."""
    newest: dict[str, Decision] = {}
    for record in read_to_end(bootstrap, TOPIC):
        decision = decode(record.value())
        newest[decision.command_id] = decision
    return newest


class Desk:
    """Sends commands, receives outcomes, follows streams and records decisions.

    `streams` are the versions of the streams that lost events, by (topic, subject), where `continued`
    (`topic/partition` → offset) begins. Use it in a `with`.
    """

    def __init__(
        self, bootstrap: str, streams: Mapping[tuple[str, str], int], continued: Mapping[str, int]
    ) -> None:
        self._bootstrap = bootstrap
        self._versions = dict(streams)
        self._outcomes: dict[str, Outcome] = {}
        self._producer = clients.writer(bootstrap, {"message.timeout.ms": DELIVERY_SECONDS * 1000})
        self._consumer = clients.follower(bootstrap, options={"fetch.wait.max.ms": 50})
        self._replies = {service: self._reply_to(service) for service in TOPICS}
        self._partitions = {topic: len(partitions_of(bootstrap, topic)) for topic in EVENT_TOPICS}
        positions = [_position(name, offset) for name, offset in continued.items()]
        self._consumer.assign([*map(self._end, self._replies.values()), *positions])

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def send(self, service: str, request: LostRequest, epoch: int) -> Outcome:
        """Send the command unchanged, in this epoch, and return its outcome. Raises NoOutcome."""
        ours = {"ce_epoch": b"%d" % epoch, "ce_replyto": str(self._replies[service]).encode()}
        headers = [(name, ours.pop(name, value)) for name, value in request.headers]
        command_id = dict(request.headers)["ce_id"].decode()
        self._outcomes.pop(command_id, None)
        headers += ours.items()
        record = NewRecord(request.topic, request.key, request.value, headers=headers)
        deliver(self._producer, [record], DELIVERY_SECONDS + 1)
        until = time.monotonic() + OUTCOME_SECONDS
        while command_id not in self._outcomes:
            if time.monotonic() > until:
                raise NoOutcome(f"{command_id} has no outcome within {OUTCOME_SECONDS:.0f} s")
            self._listen()
        return self._outcomes[command_id]

    def await_version(self, topic: str, subject: str, version: int, seconds: float) -> None:
        """Wait until the stream has `version`, or `seconds` have passed."""
        until = time.monotonic() + seconds
        while self._versions.get((topic, subject), version) < version and time.monotonic() <= until:
            self._listen()

    def write(self, decisions: Sequence[Decision]) -> None:
        """Record decisions. Raises TimeoutError."""
        records = [NewRecord(TOPIC, decision.command_id, encode(TOPIC, decision)) for decision in decisions]
        deliver(self._producer, records, DELIVERY_SECONDS + 1)

    def _listen(self) -> None:
        for record in sound(self._consumer.consume(500, 0.05)):
            self._receive(record)

    def _receive(self, record: Message) -> None:
        if record.topic() not in self._partitions:
            match decode(record.value()):
                case OutcomeBatch(outcomes=outcomes):
                    self._outcomes.update((outcome.command_id, outcome) for outcome in outcomes)
            return
        metadata = event_in_any_epoch(record, self._partitions[record.topic()])
        if metadata is not None and (stream := (record.topic(), metadata.subject)) in self._versions:
            self._versions[stream] = max(self._versions[stream], metadata.version)

    def _reply_to(self, service: str) -> ReplyAddress:
        """The last partition of the outcomes: no replica of the API reads it."""
        topic = TOPICS[service].outcomes
        return ReplyAddress(topic, partitions_of(self._bootstrap, topic)[-1], "", "")

    def _end(self, reply: ReplyAddress) -> TopicPartition:
        number = reply.partition or 0
        return TopicPartition(
            reply.topic, number, high_watermarks(self._bootstrap, reply.topic, [number])[number]
        )


def _position(partition: str, offset: int) -> TopicPartition:
    """`partition` is `topic/number`."""
    topic, _, number = partition.rpartition("/")
    return TopicPartition(topic, int(number), offset)
