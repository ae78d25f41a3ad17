"""The unplanned failover: the active site is gone, and the passive one goes on with what has crossed."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException

from infra.base.settings import StackSettings
from infra.dr.cut import torn_at
from infra.dr.plan import Plan, PlanFile, find_target, hear, heard
from infra.dr.promotion import promote, stop_mirror
from infra.dr.steps import NotDone, Show, Steps
from infra.dr.switchover import Failover
from infra.log.control import stand_down
from infra.stack.site import Site
from services.kernel.log.transactions import OwnershipLost

RISK = (
    "Two sites would write for a moment. What {source} acknowledges from now on, and what has not crossed "
    "yet, is lost to {target}; it is listed by `./daybook failover report`. With --planned nothing is lost."
)


def take_over(
    settings: StackSettings, to: str = "", force: bool = False, show: Show = lambda _: None
) -> Failover:
    """Make the passive site the active one without the other. `force`: though the other still answers.

    Run again after an interruption it goes on. Raises NotDone.
    """
    began, file, steps = time.monotonic(), PlanFile(settings), Steps(show)
    under_way = file.read()
    target, source = find_target(settings, to or (under_way.target if under_way else ""))
    plan = _plan(under_way, source, target, force)
    file.write(plan)
    if plan.ends is None:
        plan = file.with_ends(plan, stop_mirror(target, source, steps))
    with steps.step("partially mirrored transactions") as doing:
        torn = torn_at(target.bootstrap)
        missing = sum(each.count - each.crossed for each in torn)
        doing.detail = f"{len(torn)} partially mirrored, {missing} of their events are missing"
    promote(target, plan.epoch, plan.ends or {}, steps, hold="takeover")
    without = time.monotonic() - began
    with steps.step(f"{source.name} demoted") as doing:
        doing.detail = _stand_down(source, plan.epoch)
    file.remove()
    about = (plan.kind, source.name, target.name, plan.epoch)
    return Failover(*about, tuple(steps.done), None if under_way else without, torn)


def _plan(under_way: Plan | None, source: Site, target: Site, force: bool) -> Plan:
    """The plan under way, also that of a switchover in which the old site was lost, or a new one."""
    theirs, ours = hear(source.link, target.bootstrap)
    if ours is None:
        raise NotDone(f"{target.name} does not respond: `./daybook --site {target.name} status`")
    if theirs is not None and theirs.role.role == "active" and not force:
        risk = RISK.format(source=source.name, target=target.name)
        raise NotDone(f"{source.name} responds and is active. {risk} Use --force to continue anyway")
    if under_way is not None and under_way.target == target.name:
        return Plan("unplanned", source.name, target.name, under_way.epoch, under_way.ends)
    if ours.role.role == "active":
        raise NotDone(f"{target.name} is active already, in epoch {ours.role.epoch}")
    epoch = max(control.role.epoch for control in (ours, theirs) if control is not None) + 1
    return Plan("unplanned", source.name, target.name, epoch)


def _stand_down(source: Site, epoch: int) -> str:
    """Where it can be reached; its guard does the same as soon as it hears of the epoch."""
    if heard(source.link) is None:
        return "not reachable: its guard does it when it hears of this epoch, before anything else starts"
    try:
        stand_down(source.link, source.name, epoch)
    except (TimeoutError, OwnershipLost, KafkaException) as error:
        return f"not done ({error}): its guard does it"
    return ""
