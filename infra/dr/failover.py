"""Failover: the planned switchover, which loses nothing and pauses writes for seconds, and the takeover.

In a takeover the active site is gone, and the passive one continues with what was mirrored.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from contracts.kernel.records import SiteRole, SiteSwitch
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.base.waiting import TooLate
from infra.dr.incident import (
    Incident,
    SwitchHistory,
    newest_history,
    record_following,
    record_step,
    require_no_loss,
    situation,
)
from infra.dr.inputs import drain
from infra.dr.losses import TornTransaction, torn_at
from infra.dr.mirror import MirrorMeter
from infra.dr.plan import Show, SiteStep, Steps, both_sites, control_at, controls_at, other_than, passive_site
from infra.dr.promotion import demoted, mirror_running, promote, start_reverse, stop_mirror
from infra.log.control import PATIENT_SECONDS, Address, lift_hold, stand_down, write_hold, write_role
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR
from infra.stack.site import Site
from services.kernel.log.control import Control
from services.kernel.record.envelope import format_time

MOST_LAG = 5_000  # events; a mirror further behind would take too long without writes
SEE_HOLD_SECONDS = 0.5  # until every API process has read it
LOOK_SECONDS = 2.0  # a peak passes meanwhile
CAUGHT_UP_SECONDS = 60.0


@dataclass(frozen=True)
class Failover:
    """The result. `seconds_without_writes` is measured by the command: None where an earlier call started it."""

    kind: str
    source: str
    target: str
    epoch: int
    steps: tuple[SiteStep, ...]
    seconds_without_writes: float | None
    torn: tuple[TornTransaction, ...] = ()


def switch_over(
    settings: StackSettings, to: str = "", timeout: float = 60.0, show: Show = lambda _: None
) -> Failover:
    """Make the passive site the active one, with both alive. `timeout` bounds the draining, in seconds.

    Called again after an interruption it continues. Raises NotDone; before the demotion of the old site that lifts
    the write block, and nothing has changed.
    """
    steps = Steps(show)
    switch, history, source, target = _planned_switch(settings, to)
    theirs = _control(source)
    resumed = theirs.role.role == "passive"
    if not resumed:
        _look_at_mirror(source, target, steps)
    began = time.monotonic()
    if not resumed:
        switch = _quiesce(source, switch, theirs.role.epoch, timeout, steps)
    if switch.step == "begun":
        with steps.step(f"{source.name} demoted"):
            # in its own epoch: the other site's guard has nothing to follow before the promotion
            stand_down(source.link, source.name, theirs.role.epoch)
        _prove_caught_up(source, target, steps)
        switch = record_step(target.bootstrap, switch, "stopped", stop_mirror(target, source, steps))
    promote(target, source, switch, steps, write_block="quiesced")
    without = None if resumed else time.monotonic() - began
    with steps.step(f"{source.name} follows epoch {switch.epoch}"):
        write_role(source.link, SiteRole(source.name, "passive", switch.epoch))
    start_reverse(target, source, switch, steps)
    if history.incident is not None and history.incident.switch.source == target.name:
        record_following(target.bootstrap, history.incident, "returned")
    record_step(target.bootstrap, switch, "promoted")
    return Failover("planned", source.name, target.name, switch.epoch, tuple(steps.done), without)


def abort(settings: StackSettings) -> str:
    """Abort an interrupted switchover, before the old site is demoted; or a failover that only stopped the mirror.
    Raises NotDone."""
    sites, states, history = situation(settings)
    unfinished = history.unfinished
    for name, control in states.items():
        if control is None or control.role.role != "active":
            continue
        begun = unfinished is not None and (unfinished.kind, unfinished.source) == ("planned", name)
        if control.held == "quiesced" or begun:
            lift_hold(sites[name].bootstrap)
            if unfinished is not None and begun:
                record_step(sites[name].bootstrap, unfinished, "aborted")
            return f"{name} accepts writes again"
    if unfinished is None:
        for name, control in states.items():
            passive = control is not None and control.role.role == "passive" and history.incident is None
            if passive and MIRROR in sites[name].journal.held():
                lift_hold(sites[name].bootstrap)  # it announces an epoch to the other site
                platform_of(settings).start(sites[name], MIRROR)
                return f"the mirror at {name} copies again"
        raise NotDone("no switchover is under way")
    raise NotDone(
        f"{unfinished.source} is already demoted: a switchover can no longer be aborted. Run the failover again"
    )


def _planned_switch(settings: StackSettings, to: str) -> tuple[SiteSwitch, SwitchHistory, Site, Site]:
    """The switch that is under way, or a new one, and its two sites. Raises NotDone where they do not allow it."""
    sites, states, history = situation(settings, PATIENT_SECONDS)
    if (unfinished := history.unfinished) is not None:
        if unfinished.kind == "unplanned":
            raise NotDone("an unplanned failover is not finished: run `./daybook failover --unplanned` again")
        if to not in ("", unfinished.target):
            raise NotDone(
                f"a switchover to {unfinished.target} is not finished: run it again without --to {to}"
            )
        return unfinished, history, sites[unfinished.source], sites[unfinished.target]
    if not to and history.incident is not None:
        require_no_loss(history, history.incident.switch.source)
    source = other_than(sites, to) if to else other_than(sites, passive_site(sites, states).name)
    target = other_than(sites, source.name)
    require_no_loss(history, target.name)
    theirs, ours = _control(source, silent=states[source.name] is None), states[target.name]
    if ours is None:
        raise NotDone(f"{target.name} does not respond: `./daybook --site {target.name} status`")
    if not theirs.writing or ours.role.role != "passive":
        raise NotDone(
            f"{source.name} is {theirs.role.role} {theirs.held}, {target.name} is {ours.role.role}: "
            "a switchover needs an active site that writes, and a passive one"
        )
    epoch = max(theirs.role.epoch, ours.role.epoch) + 1
    return SiteSwitch(epoch, "planned", source.name, target.name, "begun", (), 0), history, source, target


def _control(source: Site, *, silent: bool = False) -> Control:
    control = None if silent else control_at(source.link, PATIENT_SECONDS)
    if control is None:
        raise NotDone(f"{source.name} does not respond; if it is lost: `./daybook failover --unplanned`")
    return control


def _look_at_mirror(source: Site, target: Site, steps: Steps) -> None:
    """Raises NotDone where the mirror does not run, or is so far behind that the pause would be long."""
    if not mirror_running(target):
        raise NotDone(f"the mirror at {target.name} does not run: `./daybook --site {target.name} status`")

    def error(late: TooLate) -> NotDone:
        return NotDone(
            f"the mirror is too far behind (events: {late.last}): wait until `./daybook sites` shows less"
        )

    with steps.step("mirror lag checked") as doing:
        with MirrorMeter(source.link, target.bootstrap, source.name) as meter:
            behind = meter.wait(MOST_LAG, LOOK_SECONDS, error)
        doing.detail = f"{behind} events behind"


def _quiesce(source: Site, switch: SiteSwitch, epoch: int, timeout: float, steps: Steps) -> SiteSwitch:
    """Refuse new requests, wait until the accepted ones are executed, and record that. If it fails, writes go on."""
    try:
        with steps.step(f"writes paused at {source.name}"):
            write_hold(source.link, "quiesced", epoch)
            time.sleep(SEE_HOLD_SECONDS)
        with steps.step("commands drained") as doing:
            doing.detail = drain(source.link, timeout)
        return record_step(source.link, switch, "begun")
    except BaseException:  # also when the operator interrupts it
        lift_hold(source.link)
        raise


def _prove_caught_up(source: Site, target: Site, steps: Steps) -> None:
    def error(late: TooLate) -> NotDone:
        return NotDone(
            f"the mirror is not caught up (events behind: {late.last}); {source.name} is demoted. Run this command "
            "again when the mirror is running; it continues here"
        )

    with steps.step("mirror caught up, proven") as doing:
        with MirrorMeter(source.link, target.bootstrap, source.name) as meter:
            meter.wait(0, CAUGHT_UP_SECONDS, error)
        doing.detail = "0 events behind"


RISK = (
    "Two sites would write for a moment. What {source} acknowledges from now on, and what has not crossed "
    "yet, is lost to {target}; it is listed by `./daybook failover report`. With --planned nothing is lost."
)


@dataclass(frozen=True)
class Takeover:
    """An unplanned failover as it is possible now: `switch` may be under way already."""

    switch: SiteSwitch
    source: Site
    target: Site


def take_over(plan: Takeover, show: Show = lambda _: None) -> Failover:
    """Make the passive site the active one without the other. Raises NotDone; a second call continues."""
    began, steps = time.monotonic(), Steps(show)
    switch, source, target = plan.switch, plan.source, plan.target
    resumed = switch.step == "stopped"
    if not resumed:
        switch = record_step(target.bootstrap, switch, "stopped", stop_mirror(target, source, steps))
    with steps.step("partially mirrored transactions") as doing:
        torn = torn_at(target.bootstrap)
        missing = sum(transaction.count - transaction.crossed for transaction in torn)
        doing.detail = f"{len(torn)} at the end of the mirrored log, {missing} of their events are missing"
    promote(target, source, switch, steps, write_block="takeover")
    without = time.monotonic() - began
    with steps.step(f"{source.name} demoted") as doing:
        doing.detail = _stand_down(source, switch.epoch)
    record_step(target.bootstrap, switch, "promoted")
    about = (switch.kind, source.name, target.name, switch.epoch)
    return Failover(*about, tuple(steps.done), None if resumed else without, torn)


def possible_takeover(settings: StackSettings, to: str = "", force: bool = False) -> Takeover:
    """What `take_over` would do. Changes nothing. `force`: although the other site responds, or `to` was itself lost.

    It continues a switchover in which the old site was lost. Raises NotDone.
    """
    sites = both_sites(settings)
    # all at once: what is lost is silent on every way, and each silence takes a timeout
    responses = controls_at(
        *(site.bootstrap for site in sites.values()), *(site.link for site in sites.values())
    )
    states = dict(zip(sites, responses[:2], strict=True))
    linked = dict(zip(sites, responses[2:], strict=True))
    history = newest_history(sites, states)
    unfinished, incident = history.unfinished, history.incident
    if unfinished is None and incident is not None and to in ("", incident.switch.target) and not force:
        _refuse_to_repeat(incident, states[incident.switch.target])
    source = other_than(sites, to or _default_target(sites, states, unfinished))
    target = other_than(sites, source.name)
    if not force:
        require_no_loss(history, target.name)
    theirs, ours = linked[source.name], states[target.name]
    if ours is None:
        raise NotDone(f"{target.name} does not respond: `./daybook --site {target.name} status`")
    promoted = unfinished is not None and ours.role.epoch >= unfinished.epoch
    if theirs is not None and theirs.role.role == "active" and not (force or promoted):
        risk = RISK.format(source=source.name, target=target.name)
        raise NotDone(f"{source.name} responds and is active. {risk} Use --force to continue anyway")
    if unfinished is not None and unfinished.target == target.name:
        # Before the promotion the mirror is stopped again: it may have copied since, if the takeover was aborted.
        step = unfinished.step if promoted else "begun"
        return Takeover(replace(unfinished, kind="unplanned", step=step), source, target)
    if ours.role.role == "active":
        raise NotDone(f"{target.name} is active already, in epoch {ours.role.epoch}")
    # the silent site may have come as far as the epoch of a switch that this one did not see the end of
    opened = unfinished.epoch if unfinished is not None else 0
    epoch = max(opened, *(control.role.epoch for control in (ours, theirs) if control is not None)) + 1
    return Takeover(SiteSwitch(epoch, "unplanned", source.name, target.name, "begun", (), 0), source, target)


def _default_target(
    sites: Mapping[str, Site], states: Mapping[str, Control | None], unfinished: SiteSwitch | None
) -> str:
    """The target of the switch that is under way, or the passive site. Raises NotDone.

    A target that was lost after its source had been demoted is no longer one: the source takes over from it.
    """
    if unfinished is not None:
        source = states[unfinished.source]
        if states[unfinished.target] is not None or source is None or source.role.role == "active":
            return unfinished.target
    return passive_site(sites, states).name


def _refuse_to_repeat(incident: Incident, survivor: Control | None) -> None:
    """Raises NotDone where the failover was done already and the site still stands."""
    done = incident.switch
    if survivor is not None and survivor.role.role == "active" and survivor.role.epoch >= done.epoch:
        raise NotDone(
            f"nothing to do: {done.target} replaced {done.source} in epoch {done.epoch}, at "
            f"{format_time(done.recorded_at)}. {incident.next_step}"
        )


def _stand_down(source: Site, epoch: int) -> str:
    """Demote the old site if it is reachable; otherwise its guard does it when it reads the new epoch."""
    if control_at(source.link) is None:
        return "not reachable: its guard does it when it reads this epoch, before anything else starts"
    reason = demoted(Address(source.name, source.link), epoch)
    return f"not done ({reason}): its guard does it" if reason else ""
