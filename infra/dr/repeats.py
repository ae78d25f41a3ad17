"""What a repeat of a lost refusal would return now. Nothing is sent: the rules decide about the new site's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from contracts.topics import TOPICS
from infra.dr.losses import Loss, Report
from infra.log.event_log import read_log
from services.inventory.domain.decider import stock_decider
from services.kernel.log.reader import partitions_of
from services.kernel.log.rule import Event, Step, home_of, step
from services.kernel.model.decider import Decider, Refused
from services.kernel.record.codec import decode
from services.kernel.record.envelope import read_headers
from services.kernel.worker.entities import unexpected
from services.order.domain.decider import order_decider

DECIDERS: Mapping[str, Decider[Any, Any, Any]] = {"order": order_decider, "inventory": stock_decider}


def with_repeats(new: str, report: Report) -> Report:
    """The report, each lost refusal with what a repeat would return at `new` (host:port). Raises NotCaughtUp.

    The streams of the refused entities are read from their beginning. Empty where the command is gone by retention.
    """
    repeats: dict[str, str] = {}
    for service, decider in DECIDERS.items():
        refused = [
            loss
            for loss in report.acknowledged
            if loss.service == service and loss.outcome != "accepted" and loss.request and not loss.again
        ]
        states = _states(new, TOPICS[service].events, decider, {loss.subject for loss in refused})
        repeats |= {loss.command_id: _outcome(decider, loss, *states[loss.subject]) for loss in refused}
    losses = (replace(loss, repeat=repeats.get(loss.command_id, "")) for loss in report.losses)
    return replace(report, losses=tuple(losses))


def _states(
    new: str, topic: str, decider: Decider[Any, Any, Any], subjects: Iterable[str]
) -> dict[str, tuple[Any, int]]:
    """Each entity's state and version."""
    states = dict.fromkeys(subjects, (decider.initial, 0))
    count = len(partitions_of(new, topic)) if states else 1
    starts = {home_of(subject, count): 0 for subject in states}
    keys = {subject.encode() for subject in states}
    for record, kind in read_log(new, topic, starts, keys=keys) if states else ():
        if isinstance(kind, Event):
            state, version = states[kind.metadata.subject]
            if step(version, kind) is Step.NEXT:
                states[kind.metadata.subject] = decider.evolve(state, decode(record.value())), version + 1
    return states


def _outcome(decider: Decider[Any, Any, Any], loss: Loss, state: Any, version: int) -> str:
    """`accepted`, `conflict` or `refused: <code>`."""
    assert loss.request is not None
    if unexpected(read_headers(loss.request.headers).expected_version, version):
        return "conflict"
    try:
        decider.decide(decode(loss.request.value), state)
    except Refused as refusal:
        return f"refused: {refusal.code}"
    return "accepted"
