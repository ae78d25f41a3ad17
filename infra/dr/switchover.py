"""The planned switchover: nothing is lost, and writes rest for some seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass

from contracts.kernel.records import SiteRole
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.dr.cut import TornTransaction
from infra.dr.draining import drain
from infra.dr.mirror_position import MirrorMeter
from infra.dr.plan import Plan, PlanFile, both_sites, controls, find_target, heard
from infra.dr.promotion import mirror_running, promote, stop_mirror
from infra.dr.steps import NotDone, Show, SiteStep, Steps
from infra.dr.turning import start_reverse
from infra.log.control import lift_hold, stand_down, write_hold, write_role
from infra.stack.site import Site
from services.kernel.log.control import Control

MOST_LAG = 5_000  # events; a mirror further behind would take too long without writes
SEE_HOLD_SECONDS = 0.5  # until every API process has read it
CAUGHT_UP_SECONDS = 60.0


@dataclass(frozen=True)
class Failover:
    """What was done. `seconds_without_writes` is as the command knows it: None where it began before."""

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

    Run again after an interruption it goes on. Raises NotDone; before the old site has stood down that lifts
    the hold, and nothing has changed.
    """
    file, steps = PlanFile(settings), Steps(show)
    plan, source, target = _plan(settings, file, to)
    theirs = _control(source)
    resumed = theirs.role.role == "passive"
    if not resumed:
        _look_at_mirror(source, target, steps)
    began = time.monotonic()
    if not resumed:
        _quiesce(source, theirs.role.epoch, timeout, steps)
        file.write(plan)
    if plan.ends is None:
        with steps.step(f"{source.name} demoted"):
            # in its own epoch: the other site's guard has nothing to follow before the promotion
            stand_down(source.link, source.name, theirs.role.epoch)
        _prove_caught_up(source, target, steps)
        plan = file.with_ends(plan, stop_mirror(target, source, steps))
    ends = plan.ends or {}
    promote(target, plan.epoch, ends, steps, hold="quiesced")
    without = None if resumed else time.monotonic() - began
    with steps.step(f"{source.name} follows epoch {plan.epoch}"):
        write_role(source.link, SiteRole(source.name, "passive", plan.epoch))
    start_reverse(target, source, ends, steps)
    file.remove()
    return Failover("planned", source.name, target.name, plan.epoch, tuple(steps.done), without)


def abort(settings: StackSettings) -> str:
    """Give an interrupted switchover up, while the old site has not stood down. Raises NotDone."""
    plan = PlanFile(settings).read()
    for name, control in controls(both_sites(settings)).items():
        if control is not None and control.role.role == "active" and control.held == "quiesced":
            lift_hold(both_sites(settings)[name].bootstrap)
            PlanFile(settings).remove()
            return f"{name} accepts writes again"
    if plan is None:
        raise NotDone("no switchover is under way")
    raise NotDone(
        f"{plan.source} is already demoted: a switchover can no longer be aborted. Run the failover again"
    )


def _plan(settings: StackSettings, file: PlanFile, to: str) -> tuple[Plan, Site, Site]:
    """The plan under way, or a new one. Raises NotDone where the sites are not fit for it."""
    plan = file.read()
    if plan is not None and plan.kind == "unplanned":
        raise NotDone("an unplanned failover is not finished: run `./daybook failover --unplanned` again")
    if plan is not None and to not in ("", plan.target):
        raise NotDone(f"a switchover to {plan.target} is not finished: run it again without --to {to}")
    target, source = find_target(settings, plan.target if plan else to)
    if plan is not None:
        return plan, source, target
    theirs, ours = _control(source), heard(target.bootstrap)
    if ours is None:
        raise NotDone(f"{target.name} does not respond: `./daybook --site {target.name} status`")
    if not theirs.writing or ours.role.role != "passive":
        raise NotDone(
            f"{source.name} is {theirs.role.role} {theirs.held}, {target.name} is {ours.role.role}: "
            "a switchover needs an active site that writes, and a passive one"
        )
    epoch = max(theirs.role.epoch, ours.role.epoch) + 1
    return Plan("planned", source.name, target.name, epoch), source, target


def _control(source: Site) -> Control:
    control = heard(source.link)
    if control is None:
        raise NotDone(f"{source.name} does not respond; if it is lost: `./daybook failover --unplanned`")
    return control


def _look_at_mirror(source: Site, target: Site, steps: Steps) -> None:
    """Raises NotDone where it does not run, or is so far behind that writes would rest for long."""
    if not mirror_running(target):
        raise NotDone(f"the mirror at {target.name} does not run: `./daybook --site {target.name} status`")
    with (
        steps.step("mirror lag checked") as doing,
        MirrorMeter(source.link, target.bootstrap, source.name) as meter,
    ):
        behind = meter.read(at_most=MOST_LAG).total
        if behind > MOST_LAG:
            raise NotDone(f"the mirror is {behind} events behind: wait until `./daybook sites` shows less")
        doing.detail = f"{behind} events behind"


def _quiesce(source: Site, epoch: int, timeout: float, steps: Steps) -> None:
    """No new requests, then wait until those that were taken are through. Raises NotDone, writes going on."""
    try:
        with steps.step(f"writes paused at {source.name}"):
            write_hold(source.link, "quiesced", epoch)
            time.sleep(SEE_HOLD_SECONDS)
        with steps.step("commands drained") as doing:
            doing.detail = drain(source.link, timeout)
    except BaseException:  # also when the operator interrupts it
        lift_hold(source.link)
        raise


def _prove_caught_up(source: Site, target: Site, steps: Steps) -> None:
    with steps.step("mirror caught up, proven") as doing:
        with MirrorMeter(source.link, target.bootstrap, source.name) as meter:
            wait_until(
                lambda: meter.read().total,
                f"the mirror into {target.name} is caught up",
                CAUGHT_UP_SECONDS,
                enough=lambda behind: behind == 0,
                error=lambda late: NotDone(
                    f"the mirror is still {late.last} events behind; {source.name} is demoted. Run this "
                    "command again when the mirror is running; it continues here"
                ),
            )
        doing.detail = "0 events behind"
