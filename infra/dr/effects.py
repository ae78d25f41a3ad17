"""What the new site did since a switch with what it lacks: repeated commands, and streams that have diverged."""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.dr.old_log import EVENTS, OUTCOMES, Unmirrored
from infra.log.event_log import read_log
from services.kernel.log.reader import Partition, read_to_end
from services.kernel.log.rule import Event, answer_of


@dataclass(frozen=True)
class Again:
    """The outcome at the new site of a repeated command whose first outcome was lost; `kind` as in an outcome."""

    kind: str
    version: int
    event_id: str
    code: str = ""


@dataclass(frozen=True)
class Parted:
    """The new site has another event at the version of a lost one."""

    topic: str
    subject: str
    version: int
    lost_id: str
    lost_type: str
    new_id: str
    new_type: str


def effects(
    new: str, lost: Unmirrored, own: Mapping[Partition, int]
) -> tuple[dict[str, Again], list[Parted]]:
    """The outcomes of the lost commands, by id, and the diverged versions, at `new` (host:port).

    `own` is the first offset of each partition that is the new site's own. Only keys of lost records are looked at.
    """
    subjects = {event.metadata.subject for event in lost.events}
    subjects |= {refusal.outcome.subject for refusal in lost.outcomes}
    commands = {event.metadata.causation_id for event in lost.events}
    commands |= {refusal.outcome.command_id for refusal in lost.outcomes}
    keys = {subject.encode() for subject in subjects}
    again: dict[str, Again] = {}
    parted: list[Parted] = []
    if not keys:
        return again, parted
    lost_at = {(event.topic, event.metadata.subject, event.metadata.version): event for event in lost.events}
    for topic in EVENTS:
        starts = {number: offset for (name, number), offset in own.items() if name == topic}
        opened = dict.fromkeys(starts, lost.epoch)
        for _, kind in read_log(new, topic, starts, epochs=opened, keys=keys):
            if not isinstance(kind, Event):
                continue
            meta = kind.metadata
            if meta.causation_id in commands:
                again[meta.causation_id] = Again("accepted", meta.version, meta.id)
            was = lost_at.get((topic, meta.subject, meta.version))
            if was is not None and was.metadata.id != meta.id:
                about = (meta.subject, meta.version, was.metadata.id, was.metadata.type, meta.id, meta.type)
                parted.append(Parted(topic, *about))
    for topic in OUTCOMES:
        starts = {number: offset for (name, number), offset in own.items() if name == topic}
        for record in read_to_end(new, topic, starts):
            recorded = answer_of(record) if record.key() in keys else None
            if recorded is not None and recorded.outcome.command_id in commands:
                outcome = recorded.outcome
                again.setdefault(outcome.command_id, Again(outcome.kind, outcome.version, "", outcome.code))
    return again, parted
