"""Failback after the loss of a site: rebuilds it while writes continue, and makes it the active one again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from infra.base.settings import StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.dr.comparison import SiteComparison, compare
from infra.dr.failover import Failover, switch_over
from infra.dr.incident import Incident, situation
from infra.dr.mirror import MirrorMeter
from infra.dr.plan import NotDone, Show, SiteStep, Steps, both_sites
from infra.dr.rebuild import CLOSE_EVENTS, Rebuilding, Rebuilt, rebuild_site
from infra.stack.site import Site

COMPARE_SECONDS = 120.0


@dataclass(frozen=True)
class Failback:
    """`rebuilt` is None where that was done before; `comparison` is of both logs at the end."""

    rebuilt: Rebuilt | None
    switchover: Failover
    steps: tuple[SiteStep, ...]
    comparison: SiteComparison


def open_incident(settings: StackSettings) -> Incident:
    """The loss that a failback would end. Raises NotDone where no site was lost."""
    incident = situation(settings).history.incident
    if incident is None:
        raise NotDone(
            "no site was lost, so there is nothing to go back from. `./daybook failover --planned` moves the shop to "
            "the other site and loses nothing"
        )
    return incident


def fail_back(
    settings: StackSettings,
    lost: str,
    rebuilding: Rebuilding | None,
    timeout: float = 60.0,
    show: Show = lambda _: None,
) -> Failback:
    """Rebuild the site `lost`, unless that is done, and switch over to it. Raises NotDone.

    If it is interrupted, run it again: it continues with what is not done.
    """
    rebuilt = None if rebuilding is None else rebuild_site(rebuilding, show)
    switched = switch_over(settings, lost, timeout, show)
    sites, steps = both_sites(settings), Steps(show)
    with steps.step("logs compared") as doing:
        comparison = _compare(sites[switched.target], sites[switched.source])
        doing.detail = f"{comparison.records} records equal, {len(comparison.different)} partitions differ"
    return Failback(rebuilt, switched, tuple(steps.done), comparison)


def _compare(active: Site, passive: Site) -> SiteComparison:
    """Compare both logs when the reversed mirror runs: this proves that it started at the right positions."""
    # while the mirror starts, its positions may not be readable for a while
    with MirrorMeter(active.link, passive.bootstrap, active.name) as meter, suppress(TooLate):
        wait_until(
            lambda: meter.read(at_most=CLOSE_EVENTS).total <= CLOSE_EVENTS,
            f"the mirror into {passive.name} is close",
            COMPARE_SECONDS,
            later=(TimeoutError,),
        )
    return compare(active.bootstrap, passive.bootstrap)
