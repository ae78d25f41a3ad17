"""After a failover, for each acknowledged command that did not cross: send it again, or write it off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from contracts.kernel.records import LossReissued, LossWrittenOff
from contracts.topics import TOPICS
from infra.base.errors import DaybookError
from infra.dr.deciding import Decision, Desk, decisions
from infra.dr.losses import Loss, Report
from services.kernel.log.control import read_control
from services.kernel.record.envelope import now_micros

# How long a command waits for the conversation that it met an end of the first time.
STREAM_SECONDS = 5.0


class Undecidable(DaybookError):
    """The command cannot be sent again or written off; the text says why."""


@dataclass(frozen=True)
class ReconStanding:
    """A lost command and what became of it so far.

    `state` is `open`, `reissued`, `written off`, `done again` (a client repeated it at the new site) or
    `no promise` (it was refused, or belongs to a conversation, which goes on by itself).
    """

    loss: Loss
    state: str
    decision: Decision | None = None


def save(report: Report, file: Path) -> None:
    """Keep a report: the old log may be gone when the last entry is decided."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".fresh")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    fresh.replace(file)


def load(file: Path) -> Report:
    """Raises OSError or msgspec.ValidationError."""
    return msgspec.json.decode(file.read_bytes(), type=Report)


def standings(bootstrap: str, report: Report) -> list[ReconStanding]:
    """Every entry of the report, oldest first, with what was decided at the new active site."""
    decided = decisions(bootstrap)
    return [_standing(loss, decided.get(loss.command_id)) for loss in report.losses]


def chosen(entries: Iterable[ReconStanding], ids: Sequence[str]) -> list[ReconStanding]:
    """The entries with these command ids, or beginnings of ids. Raises `Undecidable`."""
    every = list(entries)
    found = []
    for wanted in ids:
        matching = [entry for entry in every if entry.loss.command_id.startswith(wanted)]
        if len(matching) != 1:
            raise Undecidable(f"{wanted} names {len(matching)} entries of the report")
        found += matching
    return found


def reissue(
    bootstrap: str,
    report: Report,
    entries: Sequence[ReconStanding],
    progress: Callable[[ReconStanding], None],
) -> list[ReconStanding]:
    """Send commands again under their old ids, in their old order, one by one; record what came of it.

    Sent twice, a command is executed once. Raises `Undecidable`, `NoOutcome` or TimeoutError; what was
    decided before stays decided.
    """
    control = read_control(bootstrap)
    if not control.taking:
        raise Undecidable(
            f"the site {control.role.site} does not take commands ({control.held or control.role.role})"
        )
    for entry in entries:
        _check(entry)
    done = []
    with Desk(bootstrap, _streams(report), report.continued) as desk:
        for entry in sorted(entries, key=lambda entry: (entry.loss.at, entry.loss.version)):
            done.append(_reissue(desk, entry.loss, control.role.epoch))
            progress(done[-1])
    return done


def write_off(bootstrap: str, entries: Sequence[ReconStanding], reason: str) -> list[ReconStanding]:
    """Give commands up. Raises `Undecidable` for one that was decided already, TimeoutError."""
    done = []
    for entry in entries:
        loss = entry.loss
        if entry.decision is not None:
            raise Undecidable(f"{loss.command_id} is {entry.state} already")
        about = loss.command_id, loss.command_type, loss.subject, loss.epoch
        done.append(ReconStanding(loss, "written off", LossWrittenOff(*about, reason, now_micros())))
    with Desk(bootstrap, {}, {}) as desk:
        desk.write([entry.decision for entry in done if entry.decision is not None])
    return done


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
        raise Undecidable(f"{loss.command_id} is written off already")
    if loss.outcome != "accepted":
        raise Undecidable(f"{loss.command_id} was {loss.outcome}: its client was promised nothing")
    if not loss.acknowledged:
        raise Undecidable(f"{loss.command_id} is part of a conversation, which goes on by itself")
    if loss.request is None:
        raise Undecidable(f"{loss.command_id} is no longer in the old site's commands: write it off")


def _reissue(desk: Desk, loss: Loss, epoch: int) -> ReconStanding:
    """What an order and its stock said to each other in between comes first: an early repeat is refused.

    A delivery or a correction of stock depends on nothing before it, and its stream goes another way now.
    """
    if loss.request is None:
        raise Undecidable(f"{loss.command_id} has no command")
    if loss.service == "order":
        desk.await_version("order.events", loss.subject, loss.version, STREAM_SECONDS)
    outcome = desk.send(loss.service, loss.request, epoch)
    about = loss.command_id, loss.command_type, loss.subject, loss.epoch
    decision = LossReissued(*about, outcome.kind, outcome.code, now_micros())
    desk.write([decision])
    return ReconStanding(loss, "reissued", decision)


def _streams(report: Report) -> dict[tuple[str, str], int]:
    """Where the streams that lost events stood at the cut."""
    found: dict[tuple[str, str], int] = {}
    for loss in report.losses:
        if loss.events:
            stream = TOPICS[loss.service].events, loss.subject
            found[stream] = min(found.get(stream, loss.version), loss.version)
    return found
