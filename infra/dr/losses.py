"""The report of a failover, command by command: what the old site acknowledged and did not cross."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from contracts.topics import SERVICE_OF, TOPICS
from infra.dr.cut import CutConversation, TornTransaction, cut_conversations, torn_transactions
from infra.dr.lost_log import Again, LostAnswer, LostEvent, Parted, Progress, difference
from services.kernel.log.reader import partitions_by_topic, read_to_end
from services.kernel.record.envelope import format_time, now_micros

Amounts: TypeAlias = dict[str, int | str]
FIGURES = ("gross", "refund", "units", "quantity")


@dataclass(frozen=True)
class LostRecord:
    """One lost event; `version` is its place in its stream, `at` RFC 3339."""

    event_id: str
    type: str
    topic: str
    partition: int
    offset: int
    version: int
    at: str


@dataclass(frozen=True)
class LostRequest:
    """A command as it stood in the old site's command topic, to be sent again."""

    topic: str
    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Loss:
    """One command whose outcome did not cross.

    `outcome` is as clients were told (accepted, refused, …), `acknowledged` whether it came over HTTP: what
    an order and its stock say to each other is asked again by itself. `amounts` holds money in micros of
    `currency`, and units. `version` is that of the stream before the first lost event; 0 for refusals.
    """

    command_id: str
    command_type: str
    subject: str
    service: str
    outcome: str
    code: str
    acknowledged: bool
    epoch: int
    at: str
    version: int
    amounts: Amounts
    events: tuple[LostRecord, ...]
    request: LostRequest | None
    again: Again | None


@dataclass(frozen=True)
class Report:
    """`continued`: by `topic/partition`, the first offset that may hold the new site's own events."""

    old_site: str
    new_site: str
    made_at: str
    losses: tuple[Loss, ...]
    torn_transactions: tuple[TornTransaction, ...]
    conversations: tuple[CutConversation, ...]
    parted: tuple[Parted, ...]
    continued: dict[str, int]

    @property
    def acknowledged(self) -> list[Loss]:
        """What clients were told, oldest first."""
        return [loss for loss in self.losses if loss.acknowledged]


def report(old: str, new: str, old_site: str, new_site: str, progress: Progress = lambda _: None) -> Report:
    """Compare the logs at `old` and `new` (host:port). Raises NotCaughtUp where one cannot be read whole."""
    found = difference(old, new, progress)
    wanted = {(SERVICE_OF[lost.topic], lost.metadata.causation_id) for lost in found.events}
    wanted |= {(SERVICE_OF[lost.topic], lost.outcome.command_id) for lost in found.answers}
    progress("the old site's commands")
    requests = _requests(old, wanted)
    losses = [
        *_by_command(found.events, requests, found.again),
        *_refusals(found.answers, requests, found.again),
    ]
    return Report(
        old_site,
        new_site,
        format_time(now_micros()),
        tuple(sorted(losses, key=lambda loss: (loss.at, loss.version))),
        torn_transactions(found.events),
        cut_conversations(found.events, found.held),
        tuple(found.parted),
        {f"{topic}/{number}": offset for (topic, number), offset in found.continued.items()},
    )


def _by_command(
    events: Iterable[LostEvent], requests: Mapping[str, LostRequest], again: Mapping[str, Again]
) -> Iterable[Loss]:
    by_command: dict[str, list[LostEvent]] = defaultdict(list)
    for lost in events:
        by_command[lost.metadata.causation_id].append(lost)
    for command_id, group in by_command.items():
        first = group[0].metadata
        request = requests.get(command_id)
        yield Loss(
            command_id=command_id,
            command_type=_type(request),
            subject=first.subject,
            service=SERVICE_OF[group[0].topic],
            outcome="accepted",
            code="",
            acknowledged=bool(first.request_hash),
            epoch=first.epoch,
            at=format_time(first.recorded_at),
            version=first.version - 1,
            amounts=_amounts(group[0].event),
            events=tuple(map(_record, group)),
            request=request,
            again=again.get(command_id),
        )


def _refusals(
    answers: Iterable[LostAnswer], requests: Mapping[str, LostRequest], again: Mapping[str, Again]
) -> Iterable[Loss]:
    for lost in answers:
        outcome, request = lost.outcome, requests.get(lost.outcome.command_id)
        yield Loss(
            command_id=outcome.command_id,
            command_type=outcome.command_type,
            subject=outcome.subject,
            service=SERVICE_OF[lost.topic],
            outcome=outcome.kind,
            code=outcome.code,
            acknowledged=bool(outcome.request_hash),
            epoch=_epoch(request),
            at=format_time(lost.recorded_at),
            version=0,
            amounts={},
            events=(),
            request=request,
            again=again.get(outcome.command_id),
        )


def _requests(old: str, wanted: set[tuple[str, str]]) -> dict[str, LostRequest]:
    """The commands with these ids, as they were first sent; what retention has removed is absent.

    A foreign record may have any bytes as its headers.
    """
    found: dict[str, LostRequest] = {}
    there = partitions_by_topic(old)  # a site that was lost before its upgrade has no inbox
    inputs = [
        (service, topic)
        for service in sorted({each for each, _ in wanted})
        for topic in TOPICS[service].inputs
    ]
    for service, topic in inputs:
        ids = {command_id for asked, command_id in wanted if asked == service}
        for record in read_to_end(old, topic, dict.fromkeys(there.get(topic, ()), 0)):
            headers = tuple((name, value or b"") for name, value in record.headers() or ())
            command_id = dict(headers).get("ce_id", b"").decode(errors="replace")
            if command_id in ids and command_id not in found:
                key, value = record.key() or b"", record.value() or b""
                found[command_id] = LostRequest(topic, key.decode(), value, headers)
    return found


def _record(lost: LostEvent) -> LostRecord:
    meta = lost.metadata
    place = (lost.topic, lost.partition, lost.offset)
    return LostRecord(meta.id, meta.type, *place, meta.version, format_time(meta.recorded_at))


def _amounts(event: Any) -> Amounts:
    """What an event says of money (micros), units and currency."""
    found: Amounts = {name: getattr(event, name) for name in FIGURES if hasattr(event, name)}
    if lines := getattr(event, "lines", ()):
        found.setdefault("units", sum(line.quantity for line in lines))
    if currency := getattr(event, "currency", ""):
        found["currency"] = currency
    return found


def _type(request: LostRequest | None) -> str:
    return _header(request, "ce_type")


def _epoch(request: LostRequest | None) -> int:
    return int(_header(request, "ce_epoch") or 0)


def _header(request: LostRequest | None, name: str) -> str:
    """Empty where retention has removed the command, or it has no such header."""
    return dict(request.headers).get(name, b"").decode() if request is not None else ""
