"""The report of the last loss of a site: made while its disk can be read, and kept in `site.journal`.

It also says what a repeat of a lost refusal would return now: nothing is sent, the rules decide about the new site's
state.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contracts.topics import TOPICS
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.dr.export import with_customers
from infra.dr.incident import SwitchHistory, read_report, record_following, situation, write_report
from infra.dr.losses import Loss, Report, report_losses
from infra.dr.old_log import readable
from infra.dr.plan import Show, newest_active
from infra.dr.reconcile import ReconStanding, standings
from infra.log.database import in_database
from infra.log.event_log import read_log
from infra.stack.site import Site
from services.inventory.domain.decider import stock_decider
from services.kernel.log.reader import NotCaughtUp, partitions_of
from services.kernel.log.rule import Event, Step, step
from services.kernel.model.decider import Decider, Refused
from services.kernel.record.codec import decode
from services.kernel.record.envelope import partition_of, read_headers
from services.kernel.worker.entities import unexpected
from services.order.domain.decider import order_decider
from services.projection.engine.read_model import DATABASE_ERRORS

DATABASE_SECONDS = 5.0
REPEAT_SECONDS = 3.0
_CUSTOMERS = """
SELECT order_id, customer_id FROM orders.orders WHERE order_id = ANY($1) AND customer_id IS NOT NULL"""


def make_report(settings: StackSettings, show: Show, note: Show) -> Report:
    """What the last switch lost. Of an unplanned one it is kept at the active site.

    A rebuilt site has no old log: its report was made before; nor may one be that is being archived. `note` receives
    what the report lacks. Raises NotDone and the errors of reading.
    """
    sites, active, history = _at_active(settings)
    incident = history.incident
    if incident is not None and incident.rebuilt:
        return _kept(active, history)
    switch = incident.switch if incident is not None else history.last
    if switch is None:
        raise NotDone("there was no failover: nothing can be missing")
    old = sites[switch.source]
    with readable(old, show) as address:
        report = report_losses(address, active.bootstrap, switch, show)
    kept = read_report(active.bootstrap, switch.epoch) if incident is not None else None
    if kept is not None and len(kept.unproven) < len(report.unproven):
        note(f"less of the old log can be read than before: this is the report of {kept.made_at}")
        return kept
    show("customers, and what repeats would return")
    report = with_repeats(active.bootstrap, with_customers(report, _customers(active, report, note)), note)
    if incident is not None:
        write_report(active.bootstrap, switch.epoch, report)
        record_following(active.bootstrap, incident, "reported")
    return report


def _customers(active: Site, report: Report, note: Show) -> dict[str, str]:
    """By order, as the read model has them. Without it the report is complete but for customers, and a note says so."""
    orders = [loss.subject for loss in report.acknowledged if loss.service == "order"]
    try:
        rows = in_database(
            active.database_url, lambda connection: connection.fetch(_CUSTOMERS, orders), DATABASE_SECONDS
        )
        return {row["order_id"]: row["customer_id"] for row in rows}
    except DATABASE_ERRORS as error:
        note(f"customers of orders that were placed before are missing: the database cannot be read: {error}")
        return {}


def kept_report(settings: StackSettings) -> tuple[Site, Report]:
    """The report that was made last, and the active site. Raises NotDone where there is none."""
    _, active, history = _at_active(settings)
    return active, _kept(active, history)


def note_decisions(settings: StackSettings, report: Report) -> Sequence[ReconStanding]:
    """The state of every entry. Records when none is open any more."""
    _, active, history = _at_active(settings)
    entries = standings(active.bootstrap, report)
    incident = history.incident
    if incident is not None and not any(entry.state == "open" for entry in entries):
        record_following(active.bootstrap, incident, "reconciled")
    return entries


def _at_active(settings: StackSettings) -> tuple[dict[str, Site], Site, SwitchHistory]:
    """Raises NotDone where no site is active."""
    sites, states, history = situation(settings)
    if (active := newest_active(states)) is None:
        raise NotDone("no active site responds: `./daybook sites`")
    return sites, sites[active], history


def _kept(active: Site, history: SwitchHistory) -> Report:
    epochs = [step.epoch for step in history.steps if step.step == "reported"]
    if history.incident is not None:
        epochs = [history.incident.switch.epoch]
    report = read_report(active.bootstrap, epochs[-1]) if epochs else None
    if report is None:
        lost = history.incident is not None
        more = "`./daybook failover report` makes it" if lost else "no site was lost, so nothing is missing"
        raise NotDone(f"there is no report: {more}")
    return report


DECIDERS: Mapping[str, Decider[Any, Any, Any]] = {"order": order_decider, "inventory": stock_decider}


def with_repeats(new: str, report: Report, note: Show, seconds: float = REPEAT_SECONDS) -> Report:
    """The report, each lost refusal with what a repeat would return at `new` (host:port). Raises KafkaException.

    The streams of the refused entities are read from their beginning. What is not read within `seconds` is empty, and a
    note says so; so is it where the command is gone by retention.
    """
    repeats, late = dict[str, str](), time.monotonic() + seconds
    for service, decider in DECIDERS.items():
        refused = [
            loss
            for loss in report.acknowledged
            if loss.service == service and loss.outcome != "accepted" and loss.request and not loss.again
        ]
        states = _states(new, TOPICS[service].events, decider, {loss.subject for loss in refused}, late)
        if states is None:
            note(f"what repeats of lost {service} refusals would return was not read within {seconds:.0f} s")
        else:
            repeats |= {loss.command_id: _outcome(decider, loss, *states[loss.subject]) for loss in refused}
    losses = (replace(loss, repeat=repeats.get(loss.command_id, "")) for loss in report.losses)
    return replace(report, losses=tuple(losses))


def _states(
    new: str, topic: str, decider: Decider[Any, Any, Any], subjects: Iterable[str], late: float
) -> dict[str, tuple[Any, int]] | None:
    """Each entity's state and version; None where they are not read before `late`, of time.monotonic()."""
    states = dict.fromkeys(subjects, (decider.initial, 0))
    if not states:
        return states
    count, left = len(partitions_of(new, topic)), max(0.0, late - time.monotonic())
    starts, keys = {partition_of(key, count): 0 for key in states}, {key.encode() for key in states}
    read = read_log(new, topic, starts, keys=keys, until=lambda _: time.monotonic() > late, timeout=left)
    try:
        for record, kind in read:
            if isinstance(kind, Event):
                state, version = states[kind.metadata.subject]
                if step(version, kind) is Step.NEXT:
                    states[kind.metadata.subject] = decider.evolve(state, decode(record.value())), version + 1
    except NotCaughtUp:
        return None
    return None if time.monotonic() > late else states


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
