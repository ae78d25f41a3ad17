"""The fold of a read model: rows and events in, rows out, and the keys that stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, NamedTuple

from services.kernel.log.rule import Event, Step, step
from services.kernel.record.envelope import Envelope
from services.projection.engine.read_model import Arrival, Fold, Lineage, ReadModel, Row, Versioned

StopKind = Literal["failed", "forked", "unreadable", "behind"]


class Stop(NamedTuple):
    """Why an event parks its key."""

    kind: StopKind
    reason: str


BEHIND = Stop("behind", "behind a parked event")


class Folded(NamedTuple, Generic[Row]):
    """The rows that changed; the events at which keys stopped, and those behind them."""

    rows: dict[str, Versioned[Row]]
    parked: list[tuple[Arrival, Stop]]


def fold(
    model: ReadModel[Row],
    rows: Mapping[str, Versioned[Row]],
    arrivals: Iterable[Arrival],
    skipped: frozenset[tuple[str, int]] = frozenset(),
) -> Folded[Row]:
    """`rows` after the events. `skipped` are (key, version) that somebody decided to leave out."""
    changed: dict[str, Versioned[Row]] = {}
    parked: list[tuple[Arrival, Stop]] = []
    stopped: set[str] = set()
    for arrival in arrivals:
        key = arrival.key
        if key in stopped:
            parked.append((arrival, BEHIND))
            continue
        row = changed.get(key) or rows.get(key)
        done = _apply(model, row, arrival, skipped)
        if isinstance(done, Stop):
            parked.append((arrival, done))
            stopped.add(key)
        elif done is not None:
            changed[key] = done
    return Folded(changed, parked)


def versioned(fold: Fold[Row], before: Versioned[Row] | None, event: Envelope[Any]) -> Versioned[Row]:
    """The row after the event, at the event's version."""
    metadata = event.metadata
    row, lineage = (before.row, before.lineage) if before else (None, ())
    after = fold(row, event.body, metadata)
    lineage = extend(lineage, metadata.epoch, metadata.version)
    return Versioned(after, metadata.version, metadata.id, lineage, metadata.recorded_at)


def extend(lineage: Lineage, epoch: int, version: int) -> Lineage:
    """The lineage with the version that `epoch` wrote."""
    if lineage and lineage[-1][0] == epoch:
        return lineage
    return (*lineage, (epoch, version))


def _apply(
    model: ReadModel[Row],
    row: Versioned[Row] | None,
    arrival: Arrival,
    skipped: frozenset[tuple[str, int]],
) -> Versioned[Row] | Stop | None:
    """The row after the event; None where the event changes nothing."""
    metadata, verdict = arrival.kind
    if verdict == "foreign" or (skipped and (arrival.key, metadata.version) in skipped):
        return None
    read = row.version if row is not None else 0
    while skipped and (arrival.key, read + 1) in skipped:
        read += 1
    meant = step(read, arrival.kind)
    if meant is Step.APPLIED:
        return None
    if meant is Step.FORKED:
        return Stop("forked", _forked(row, read, arrival.kind))
    if arrival.event is None:
        return Stop("unreadable", arrival.error)
    try:
        return versioned(model.fold, row, arrival.event)
    except Exception as error:
        return Stop("failed", repr(error))


def _forked(row: Versioned[Any] | None, read: int, event: Event) -> str:
    """Names both records, as far as the row knows its last one."""
    this = f"version {event.metadata.version} (event {event.metadata.id})"
    if event.verdict == "suspect":
        return f"{this} was not written by the owner of the stream"
    known = row.event_id if row is not None and row.version == read else ""
    last = f"version {read} (event {known})" if known else f"version {read}"
    return f"{this} follows {last}"
