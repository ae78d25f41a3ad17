"""Changes of the active site and what followed from them, as `site.journal` has them.

A planned switchover is begun at its source, goes on at its target (`stopped`, `promoted`), and can be aborted until its
source is demoted. An unplanned one begins an incident: the lost site's acknowledgements are `reported`, `reconciled`,
the site is `rebuilt`, and may become the active one again (`returned`). Each step is written at the site that is active
or about to be: it outlives the other one.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from contracts.kernel.records import LossReport, PartitionEnd, SiteSwitch, SwitchStep
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.dr.losses import Report
from infra.dr.plan import both_sites, controls, newest_active
from infra.log.control import READ_SECONDS
from infra.stack.site import Site
from services.kernel.log.control import JOURNAL, Control, write_journal
from services.kernel.log.reader import Partition, partitions_by_topic, read_to_end
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import now_micros

PART_BYTES = 1 << 20
UNFINISHED: Sequence[SwitchStep] = ("begun", "stopped")
FOLLOWING: Sequence[SwitchStep] = ("reported", "reconciled", "rebuilt", "returned")


@dataclass(frozen=True)
class Incident:
    """The loss of a site: the switch that replaced it, and the steps that are done since."""

    switch: SiteSwitch
    done: frozenset[SwitchStep]

    @property
    def rebuilt(self) -> bool:
        return bool(self.done & {"rebuilt", "returned"})

    @property
    def next_step(self) -> str:
        """What an operator does next, as a sentence."""
        lost = self.switch.source
        if self.rebuilt:
            return f"{lost} is rebuilt. `./daybook failover --planned` makes it the active site again."
        if "reported" not in self.done:
            return f"Next: `./daybook failover report` lists what {lost} acknowledged and {self.switch.target} lacks."
        reconcile = "" if "reconciled" in self.done else "`./daybook failover reconcile`, and "
        return f"Next: {reconcile}`./daybook site rebuild {lost}`; `./daybook failback` also makes it active again."


@dataclass(frozen=True)
class SwitchHistory:
    """The steps of all switches, oldest first."""

    steps: tuple[SiteSwitch, ...] = ()

    @property
    def unfinished(self) -> SiteSwitch | None:
        """The last step of a switch that is under way. What follows from an earlier loss may be done meanwhile."""
        last = next((step for step in reversed(self.steps) if step.step not in FOLLOWING), None)
        return last if last is not None and last.step in UNFINISHED else None

    @property
    def incident(self) -> Incident | None:
        """The last loss of a site, if no operator has dealt with all of it."""
        losses = (own for own in reversed(self.steps) if (own.kind, own.step) == ("unplanned", "promoted"))
        lost = next(losses, None)
        if lost is None:
            return None
        done = frozenset(own.step for own in self.steps if own.epoch == lost.epoch and own.step in FOLLOWING)
        return None if "returned" in done else Incident(lost, done)

    @property
    def standing(self) -> str:
        """What is under way or not dealt with, as a sentence for an operator; empty if nothing is."""
        if (unfinished := self.unfinished) is not None:
            return f"A {unfinished.kind} failover to {unfinished.target} is not finished: run it again."
        if (incident := self.incident) is None:
            return ""
        lost = incident.switch
        return f"{lost.target} replaced {lost.source} in epoch {lost.epoch}. {incident.next_step}"

    @property
    def last(self) -> SiteSwitch | None:
        """The last switch that was finished."""
        return next((step for step in reversed(self.steps) if step.step == "promoted"), None)


def read_history(bootstrap: str) -> SwitchHistory:
    """What the journal at this address says."""
    return SwitchHistory(tuple(record for record in _records(bootstrap) if isinstance(record, SiteSwitch)))


class Situation(NamedTuple):
    """Both sites, their control records (None where one is silent), and the history to believe."""

    sites: dict[str, Site]
    states: dict[str, Control | None]
    history: SwitchHistory


def situation(settings: StackSettings, seconds: float = READ_SECONDS) -> Situation:
    """Read both sites now, each within so many seconds. Raises NotDone where there is one site only."""
    sites = both_sites(settings)
    states = controls(sites, seconds)
    return Situation(sites, states, newest_history(sites, states))


def newest_history(sites: Mapping[str, Site], states: Mapping[str, Control | None]) -> SwitchHistory:
    """The history to believe, of the sites that respond."""
    responding = {name: control for name, control in states.items() if control is not None}
    return believed(responding, {name: read_history(sites[name].bootstrap) for name in responding})


def believed(states: Mapping[str, Control], histories: Mapping[str, SwitchHistory]) -> SwitchHistory:
    """That of the site that is active in the newest epoch; the longest one where none is active.

    Two passive sites are in the middle of a planned switchover, of which the target may know more or less.
    """
    if (active := newest_active(states)) is not None:
        return histories.get(active, SwitchHistory())
    return max(histories.values(), key=lambda history: len(history.steps), default=SwitchHistory())


def record_step(
    bootstrap: str, switch: SiteSwitch, step: SwitchStep, ends: Mapping[Partition, int] | None = None
) -> SiteSwitch:
    """Record that a switch has come so far; `ends` stay once they are known.

    Raises TimeoutError.
    """
    kept = switch.ends
    if ends is not None:
        kept = tuple(PartitionEnd(*partition, offset) for partition, offset in sorted(ends.items()))
    now = replace(switch, step=step, ends=kept, recorded_at=now_micros())
    write_journal(bootstrap, [(f"switch/{switch.epoch}", now)])
    return now


def record_following(bootstrap: str, incident: Incident, step: SwitchStep) -> None:
    """Record, once, that a step after the loss of a site is done. Raises TimeoutError."""
    if step not in incident.done:
        record_step(bootstrap, incident.switch, step)


def write_report(bootstrap: str, epoch: int, report: Report) -> None:
    """Keep the report of the failover that opened this epoch. Raises TimeoutError."""
    content = zlib.compress(msgspec.json.encode(report))
    pieces = [content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES)]
    now = now_micros()
    parts = [LossReport(epoch, number, len(pieces), piece, now) for number, piece in enumerate(pieces)]
    write_journal(bootstrap, [(f"report/{epoch}", part) for part in parts])


def read_report(bootstrap: str, epoch: int) -> Report | None:
    """The last report of the failover that opened this epoch; None where none is kept."""
    pieces: list[bytes] = []
    whole: bytes | None = None
    for record in _records(bootstrap):
        if not isinstance(record, LossReport) or record.epoch != epoch:
            continue
        if record.part == 0:
            pieces = []
        if record.part == len(pieces):
            pieces.append(record.content)
        if len(pieces) == record.parts:
            whole, pieces = b"".join(pieces), []
    return None if whole is None else msgspec.json.decode(zlib.decompress(whole), type=Report)


def _records(bootstrap: str) -> Iterable[object]:
    if JOURNAL not in partitions_by_topic(bootstrap):
        return  # a shop that was never upgraded to this topic
    for record in read_to_end(bootstrap, JOURNAL):
        try:
            yield decode(record.value())
        except Undecodable:  # foreign
            continue


def require_no_loss(history: SwitchHistory, site: str) -> None:
    """Raises NotDone where `site` was lost and is not a copy of the other one again."""
    incident = history.incident
    if incident is not None and incident.switch.source == site and not incident.rebuilt:
        raise NotDone(
            f"{site} was replaced by {incident.switch.target} in epoch {incident.switch.epoch} and lacks what that "
            f"wrote since. {incident.next_step}"
        )
