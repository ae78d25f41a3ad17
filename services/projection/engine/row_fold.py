"""Folds events into rows; returns the rows, and the keys that stop."""

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
    """The changed rows; the events at which keys stopped, and those behind them."""

    rows: dict[str, Versioned[Row]]
    parked: list[tuple[Arrival, Stop]]


def fold(
    model: ReadModel[Row],
    rows: Mapping[str, Versioned[Row]],
    arrivals: Iterable[Arrival],
    skipped: frozenset[tuple[str, int]] = frozenset(),
) -> Folded[Row]:
    """Returns `rows` after the events. `skipped`: (key, version) that an operator skipped."""
    changed: dict[str, Versioned[Row]] = {}
    parked: list[tuple[Arrival, Stop]] = []
    stopped: set[str] = set()
    for arrival in arrivals:
        key = arrival.key
        if key in stopped:
            parked.append((arrival, BEHIND))
            continue
        row = changed.get(key) or rows.get(key)
        result = _apply(model, row, arrival, skipped)
        if isinstance(result, Stop):
            parked.append((arrival, result))
            stopped.add(key)
        elif result is not None:
            changed[key] = result
    return Folded(changed, parked)


def versioned(fold: Fold[Row], before: Versioned[Row] | None, event: Envelope[Any]) -> Versioned[Row]:
    """Returns the row after the event, at the event's version."""
    metadata = event.metadata
    row, lineage = (before.row, before.lineage) if before else (None, ())
    after = fold(row, event.body, metadata)
    lineage = extend(lineage, metadata.epoch, metadata.version)
    return Versioned(after, metadata.version, metadata.id, lineage, metadata.recorded_at)


def extend(lineage: Lineage, epoch: int, version: int) -> Lineage:
    """Returns the lineage with the version that `epoch` wrote."""
    if lineage and lineage[-1][0] == epoch:
        return lineage
    return (*lineage, (epoch, version))


def _apply(
    model: ReadModel[Row],
    row: Versioned[Row] | None,
    arrival: Arrival,
    skipped: frozenset[tuple[str, int]],
) -> Versioned[Row] | Stop | None:
    """Returns the row after the event; None if the event changes nothing."""
    metadata, verdict = arrival.kind
    if verdict == "foreign" or (skipped and (arrival.key, metadata.version) in skipped):
        return None
    read = row.version if row is not None else 0
    while skipped and (arrival.key, read + 1) in skipped:
        read += 1
    step_ = step(read, arrival.kind)
    if step_ is Step.APPLIED:
        return None
    if step_ is Step.FORKED:
        return Stop("forked", _forked(row, read, arrival.kind))
    if arrival.event is None:
        return Stop("unreadable", arrival.error)
    try:
        return versioned(model.fold, row, arrival.event)
    except Exception as error:
        return Stop("failed", repr(error))


def _forked(row: Versioned[Any] | None, read: int, event: Event) -> str:
    """Names both records, if the row knows its last event."""
    this = f"version {event.metadata.version} (event {event.metadata.id})"
    if event.verdict == "suspect":
        return f"{this} was not written by the owner of the stream"
    event_id = row.event_id if row is not None and row.version == read else ""
    last = f"version {read} (event {event_id})" if event_id else f"version {read}"
    return f"{this} follows {last}"
