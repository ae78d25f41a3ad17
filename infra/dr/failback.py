"""Going back: the old site is archived, rebuilt from the active one while writes go on, and made active."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from contracts.kernel.records import SiteRole
from infra.base.http import local_http
from infra.base.settings import StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.dr.comparison import SiteComparison, compare
from infra.dr.mirror_position import MirrorMeter
from infra.dr.overview import read_models
from infra.dr.plan import PlanFile, both_sites, heard
from infra.dr.steps import NotDone, Show, SiteStep, Steps
from infra.dr.switchover import Failover, switch_over
from infra.log.control import write_role
from infra.log.topics import SERVICES, create_topics, ensure_site
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR
from infra.stack.site import Site

CLOSE_EVENTS = 100  # behind, while writes go on: close enough to switch
REBUILD_SECONDS = 1800.0
COMPARE_SECONDS = 120.0


@dataclass(frozen=True)
class Failback:
    """`archive` holds the old site's log and database; `comparison` is of both logs at the end."""

    archive: Path
    steps: tuple[SiteStep, ...]
    switchover: Failover
    comparison: SiteComparison


def fail_back(settings: StackSettings, timeout: float = 60.0, show: Show = lambda _: None) -> Failback:
    """Rebuild the site that is not active and switch over to it. Raises NotDone.

    Interrupted before the switchover, it can be run again: the half-rebuilt site is archived too.
    """
    active, old, epoch = _roles(settings)
    platform, steps = platform_of(settings), Steps(show)
    with steps.step(f"{old.name} stopped"):
        platform.stop(old)
    with steps.step(f"{old.name} archived") as doing:
        archive = _archive(old, epoch)
        doing.detail = str(archive)
    with steps.step(f"{old.name} rebuilt empty"):
        _rebuild(old, epoch)
    with steps.step(f"{old.name} started"):
        platform.start(old, MIRROR)
        platform.start(old)
    with steps.step("mirrored back while writes go on") as doing:
        doing.detail = f"{_await_mirror(active, old)} events behind"
    with steps.step("read models and standby workers ready"):
        wait_until(
            lambda: _close(old), f"{old.name} is ready (see its status)", REBUILD_SECONDS, error=NotDone
        )
    switched = switch_over(settings, old.name, timeout, show)
    with steps.step("logs compared") as doing:
        found = _compare(old, active)
        doing.detail = f"{found.records} records equal, {len(found.different)} partitions differ"
    return Failback(archive, tuple(steps.done), switched, found)


def _roles(settings: StackSettings) -> tuple[Site, Site, int]:
    """The active site, the one to rebuild, and the epoch. Raises NotDone unless just one is active."""
    if PlanFile(settings).read() is not None:
        raise NotDone("a failover is not finished: run it again first")
    sites = both_sites(settings)
    said = {name: heard(site.bootstrap) for name, site in sites.items()}
    active = [name for name, control in said.items() if control is not None and control.taking]
    if not active:
        raise NotDone("no site is active and takes requests: `./daybook sites`")
    # a site that came back and has not heard of its end yet says active too, in an older epoch
    newest = max(active, key=lambda name: said[name].role.epoch)  # type: ignore[union-attr] # they answered
    control = said[newest]
    assert control is not None
    other = next(site for name, site in sites.items() if name != newest)
    return sites[newest], other, control.role.epoch


def _archive(site: Site, epoch: int) -> Path:
    """Move the log and the database away, as they are; answers the folder."""
    archive = site.folder / "archive" / f"{epoch}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    archive.mkdir(parents=True)
    platform_of(site.settings).lose_disks(site, archive)
    return archive


def _rebuild(site: Site, epoch: int) -> None:
    """An empty broker with the catalogue's topics; it is passive before anything else of the site starts."""
    with platform_of(site.settings).broker_alone(site) as bootstrap:
        create_topics(bootstrap)
        write_role(bootstrap, SiteRole(site.name, "passive", epoch))
        ensure_site(bootstrap, site.name)


def _await_mirror(active: Site, old: Site) -> int:
    """Wait until the mirror is close; answers how many events it is behind."""
    with MirrorMeter(active.link, old.bootstrap, active.name) as meter:
        return wait_until(
            lambda: meter.read(at_most=CLOSE_EVENTS).total,
            f"the mirror into {old.name} is close",
            REBUILD_SECONDS,
            enough=lambda behind: behind <= CLOSE_EVENTS,
            error=lambda late: NotDone(
                f"the mirror into {old.name} is {late.last} events behind: see its log"
            ),
        )


def _close(site: Site) -> bool:
    """Whether its read models are close to its log, and its workers stand by."""
    return _models_behind(site) <= CLOSE_EVENTS and all(_standing_by(site, service) for service in SERVICES)


def _models_behind(site: Site) -> float:
    """Events, summed over the partitions; infinite where it is not known."""
    behind = [model.events for model in read_models(site).values()]
    return sum(float("inf") if events is None else events for events in behind) if behind else float("inf")


def _standing_by(site: Site, service: str) -> bool:
    try:
        url = f"{site.settings.url(f'{service}-worker')}/health/ready"
        answer = local_http().get(url, timeout=1)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200 and answer.json().get("status") == "standby"


def _compare(active: Site, passive: Site) -> SiteComparison:
    """Once the mirror that was turned round runs: it must have begun at the right place."""
    # while the mirror starts, its positions may not be readable for a while
    with MirrorMeter(active.link, passive.bootstrap, active.name) as meter, suppress(TooLate):
        wait_until(
            lambda: meter.read(at_most=CLOSE_EVENTS).total <= CLOSE_EVENTS,
            f"the mirror into {passive.name} is close",
            COMPARE_SECONDS,
            later=(TimeoutError,),
        )
    return compare(active.bootstrap, passive.bootstrap)
