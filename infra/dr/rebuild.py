"""Rebuilds a site from the active one while writes continue, with its old disk, which is archived, or without; and
fails back to it."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from contracts.kernel.records import SiteRole
from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.base.waiting import TooLate, wait_until
from infra.dr.comparison import SiteComparison, compare
from infra.dr.failover import Failover, switch_over
from infra.dr.incident import Incident, SwitchHistory, record_following, situation
from infra.dr.mirror import MirrorMeter
from infra.dr.overview import read_models, worker_health
from infra.dr.plan import Show, SiteStep, Steps, both_sites, other_than
from infra.log.control import write_inputs, write_role
from infra.log.event_log import about_events
from infra.log.topics import SERVICES, Topic, catalogue, create_topics, ensure_site
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR
from infra.stack.site import Site
from services.kernel.log.control import Control

CLOSE_EVENTS = 100  # behind, while writes go on: close enough to switch
REBUILD_SECONDS = 1800.0
EVENTS_PER_SECOND = 20_000  # at least, of one mirror


@dataclass(frozen=True)
class Rebuilding:
    """A rebuild as it is possible now: `site` is emptied and copied from `active`, whose control is `control`."""

    site: Site
    active: Site
    control: Control
    history: SwitchHistory

    @property
    def consequences(self) -> str:
        """What it destroys, and for how long there is no second copy, for the operator who must agree."""
        events = about_events(self.active.bootstrap)
        seconds = max(1.0, events / EVENTS_PER_SECOND)
        kept = (
            "moved to its folder `archive`"
            if platform_of(self.site.settings).has_log(self.site)
            else "gone already"
        )
        return (
            f"{self.site.name} is stopped, and its log and database are {kept}. About {events:,} events are copied "
            f"from {self.active.name}. Until then, about {seconds:.0f} s and the time of two starts, there is no "
            "second copy."
        )


@dataclass(frozen=True)
class Rebuilt:
    """`archive` has the old log and database; None where there were none."""

    site: str
    active: str
    archive: Path | None
    events: int
    seconds: float
    steps: tuple[SiteStep, ...]


def rebuildable(settings: StackSettings, name: str, force: bool = False) -> Rebuilding:
    """Whether the site can be rebuilt now. `force`: although it is a healthy copy. Raises NotDone."""
    sites, states, history = situation(settings)
    active = other_than(sites, name)
    control = states[active.name]
    if (unfinished := history.unfinished) is not None:
        raise NotDone(f"a failover to {unfinished.target} is not finished: run it again first")
    if control is None or not control.taking:
        raise NotDone(
            f"{active.name} does not accept writes, so {name} cannot be copied from it: `./daybook sites`"
        )
    own, incident = states[name], history.incident
    if own is not None and own.role.role == "active" and own.role.epoch >= control.role.epoch:
        raise NotDone(f"{name} is active too: `./daybook sites`")
    lost = incident is not None and incident.switch.source == name and not incident.rebuilt
    if not lost and own is not None and own.role.epoch == control.role.epoch and not force:
        raise NotDone(
            f"{name} is a healthy copy of {active.name}, and was not replaced: there is nothing to rebuild. "
            "--force rebuilds it anyway"
        )
    if lost and incident is not None and "reported" not in incident.done:
        raise NotDone(f"what {name} acknowledged last is not reported yet. {incident.next_step}")
    return Rebuilding(sites[name], active, control, history)


def rebuild_site(plan: Rebuilding, show: Show = lambda _: None) -> Rebuilt:
    """Empty the site and copy the active one into it. Returns when it has caught up. Raises NotDone.

    If it is interrupted, run it again: it archives the half-rebuilt site, too.
    """
    old, active, began = plan.site, plan.active, time.monotonic()
    platform, steps = platform_of(old.settings), Steps(show)
    archive: Path | None = None
    with steps.step(f"{old.name} stopped"):
        platform.stop(old)
    if platform.has_log(old):
        with steps.step(f"{old.name} archived") as doing:
            archive = _archive(old, plan.control.role.epoch)
            doing.detail = str(archive)
    with steps.step(f"{old.name} rebuilt empty"), platform.broker_alone(old) as bootstrap:
        if about_events(bootstrap):  # the call before this one was interrupted while it archived
            raise NotDone(f"{old.name} is not empty: run this command again")
        prepare_empty(bootstrap, old.name, plan.control, catalogue(old.settings.brokers))
    with steps.step(f"{old.name} started"):
        platform.start(old, MIRROR)
        platform.start(old)
    with steps.step("mirrored back while writes go on") as doing:
        doing.detail = f"{_await_mirror(active, old, show)} events behind"
    with steps.step("read models and standby workers ready"):
        wait_until(
            lambda: _close(old), f"{old.name} is ready (see its status)", REBUILD_SECONDS, error=NotDone
        )
    incident = plan.history.incident
    if incident is not None and incident.switch.source == old.name:
        record_following(active.bootstrap, incident, "rebuilt")
    events, seconds = about_events(old.bootstrap), time.monotonic() - began
    return Rebuilt(old.name, active.name, archive, events, seconds, tuple(steps.done))


def _archive(site: Site, epoch: int) -> Path:
    """Move the log and the database to a new folder, and return it."""
    archive = site.folder / "archive" / f"{epoch}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    archive.mkdir(parents=True)
    platform_of(site.settings).lose_disks(site, archive)
    return archive


def prepare_empty(
    bootstrap: str, site: str, active: Control, topics: Mapping[str, Topic] | None = None
) -> None:
    """Create the topics and the first records at an empty broker, with the inputs' phase of the active site.

    The site is passive before anything else of it starts. `active` is the active site's control.
    """
    create_topics(bootstrap, topics)
    write_role(bootstrap, SiteRole(site, "passive", active.role.epoch))
    ensure_site(bootstrap, site)
    if active.inputs is not None:
        write_inputs(bootstrap, active.inputs.phase)


def _await_mirror(active: Site, old: Site, show: Show) -> int:
    """Wait until the mirror is close. Returns its lag in events."""

    def see(lag: int) -> None:
        show(f"{about_events(old.bootstrap):,} events at {old.name}, {lag:,} to go")

    def error(late: TooLate) -> NotDone:
        return NotDone(f"the mirror into {old.name} is not close (events behind: {late.last}): see its log")

    with MirrorMeter(active.link, old.bootstrap, active.name) as meter:
        return meter.wait(CLOSE_EVENTS, REBUILD_SECONDS, error, see)


def _close(site: Site) -> bool:
    """Whether its read models are close to its log, and its workers are standbys."""
    return _models_behind(site) <= CLOSE_EVENTS and all(_standing_by(site, service) for service in SERVICES)


def _models_behind(site: Site) -> float:
    """The lag of all read models in events; infinite where it is unknown."""
    behind = [model.events for model in read_models(site).values()]
    return sum(float("inf") if events is None else events for events in behind) if behind else float("inf")


def _standing_by(site: Site, service: str) -> bool:
    ready, body = worker_health(site, f"{service}-worker")
    return ready and body.get("status") == "standby"


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
    settings: StackSettings, lost: str, rebuilding: Rebuilding | None, timeout: float, show: Show
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
    with MirrorMeter(active.link, passive.bootstrap, active.name) as meter, suppress(TooLate):
        meter.wait(CLOSE_EVENTS, COMPARE_SECONDS)
    return compare(active.bootstrap, passive.bootstrap)
