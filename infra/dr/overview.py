"""The state of both sites, for `daybook sites`: roles, the mirror's lag, read models, standby workers.

It is complete within `VIEW_SECONDS`, whatever hangs: what has not responded by then is silent. Any of it may be
unknown.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import httpx
import msgspec
from confluent_kafka import KafkaException
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from infra.base.background import Impatient
from infra.base.http import local_http
from infra.dr.incident import SwitchHistory, believed, read_history
from infra.dr.last_lag import forecast, last_known
from infra.dr.mirror import MirrorMeter
from infra.dr.mirror_watch import MirrorStatus
from infra.log.control import read_site
from infra.stack.link import read_link
from infra.stack.platform import Platform, SiteProcess, platform_of
from infra.stack.shop import MIRROR, ROUTER, WORKERS, health, instances
from infra.stack.site import Site, home_settings
from infra.stack.tokens import caller_of
from services.kernel.log.control import Control
from services.kernel.log.reader import NotCaughtUp
from services.kernel.record.envelope import now_micros

ANSWER_SECONDS = 2.0
VIEW_SECONDS = 1.1  # with the start of the command, about two seconds
HEARD = "daybook_router_heard_timestamp_seconds"


class ReadModelView(msgspec.Struct, frozen=True):
    """Its lag behind the site's own log; None where the query API does not know it."""

    events: int | None
    seconds: float | None


class SiteView(msgspec.Struct, frozen=True):
    """One site. It is `up` unless it is known to be down. `role` is empty and `epoch` 0 where its broker is silent.

    `behind`: events of the *active* site's log that a read model here lacks, at most; null where that is unknown.
    `silent_since`: by process, when it last responded; a silent one may be absent. `workers` have their own words.
    """

    name: str
    up: bool
    role: str
    epoch: int
    write_block: str = msgspec.field(name="hold")
    link: str
    mirror: str
    canary_seconds: float | None
    read_models: Mapping[str, ReadModelView]
    workers: Mapping[str, str]
    behind: int | None = None
    silent_since: Mapping[str, str] = {}


class MirrorView(msgspec.Struct, frozen=True):
    """From `source` to `target`. `events` and `seconds` are null where a site cannot be reached; without `exact`,
    `events` is an upper bound."""

    source: str
    target: str
    events: int | None
    seconds: float | None
    reason: str = ""
    exact: bool = True


class SitesView(msgspec.Struct, frozen=True):
    """`incident`: what is under way or not dealt with since a site was lost, as a sentence; empty if nothing is."""

    sites: list[SiteView]
    mirror: MirrorView | None
    incident: str = ""


def overview(sites: Mapping[str, Site]) -> SitesView:
    """Contact every process of both sites."""
    until = time.monotonic() + VIEW_SECONDS
    controls = {
        name: Impatient(partial(read_site, site.bootstrap, VIEW_SECONDS)) for name, site in sites.items()
    }
    local_http()  # for all threads below; the brokers have been asked meanwhile
    platform = platform_of(next(iter(sites.values())).settings)
    looks = [_Look(site, platform, until) for site in sites.values()]
    lags = {target.name: Impatient(partial(_lag, source, target)) for source, target in _ways(sites)}
    seen = Impatient(partial(_seen, sites))
    measured = {name: Impatient(partial(last_known, site)) for name, site in sites.items()}
    journals = {name: Impatient(partial(_history, site)) for name, site in sites.items()}
    states = {name: control for name, call in controls.items() if (control := call.result(until))}
    mirror = None
    if (way := _way(list(sites), {name: control.role.role for name, control in states.items()})) is not None:
        last = forecast(*way, measured[way[1]].result(until), now_micros())
        mirror = MirrorView(*way, None, None, f"no response in time. {last}")
    if mirror is not None and len(states) == len(sites) and mirror.target in lags:
        mirror = lags[mirror.target].result(until) or mirror
    last_seen = seen.result(until) or {}
    views = [look.view(states.get(look.name), last_seen.get(look.name, "")) for look in looks]
    histories = {name: history for name, call in journals.items() if (history := call.result(until))}
    incident = believed(states, histories).standing
    return SitesView([replace(view, behind=_behind(view, mirror)) for view in views], mirror, incident)


def _history(site: Site) -> SwitchHistory | None:
    try:
        return read_history(site.bootstrap)
    except (KafkaException, NotCaughtUp):
        return None


class _Look:
    """One look at the processes of a site beside its broker: all are contacted at once."""

    def __init__(self, site: Site, platform: Platform, until: float) -> None:
        self._site, self._until = site, until
        self.name = site.name
        self._up = Impatient(partial(platform.up, site))
        self._mirror = Impatient(lambda: health(site.settings.health_url("guard"), "mirror") or 0)
        self._processes = Impatient(partial(platform.processes, site))
        self._canary = Impatient(partial(canary_delay, site))
        self._read_models = Impatient(partial(read_models, site))
        counts = site.journal.counts()
        names = [name for kind in WORKERS.values() for name in instances(kind, counts.get(kind, 1))]
        self._workers = {name: Impatient(partial(_worker, site, name)) for name in names}

    def view(self, control: Control | None, broker_silent_since: str) -> SiteView:
        until, about = self._until, ("", 0, "")
        if control is not None:
            about = control.role.role, control.role.epoch, control.held
        listed = self._processes.result(until)
        silent = {name: own.silent_since for name, own in (listed or {}).items() if own.silent_since}
        if control is None and broker_silent_since:
            silent["broker"] = broker_silent_since
        return SiteView(
            self.name,
            self._up.result(until) is not False,
            *about,
            str(read_link(self._site.link_state)),
            "unknown" if listed is None else mirror_state(self._site, listed, self._mirror.result(until)),
            self._canary.result(until),
            self._read_models.result(until) or {},
            {name: call.result(until) or "silent" for name, call in self._workers.items()},
            silent_since=silent,
        )


def _behind(view: SiteView, mirror: MirrorView | None) -> int | None:
    """What the mirror and the site's own read models have still to do; None where either is unknown."""
    own = [model.events for model in view.read_models.values()]
    mirrored = (
        0 if view.role == "active" else mirror.events if mirror and mirror.target == view.name else None
    )
    if mirrored is None or not own or None in own:
        return None
    return mirrored + max(events for events in own if events is not None)


def mirror_state(site: Site, processes: Mapping[str, SiteProcess], copies: int | None) -> str:
    """The mirror into the site: `ready`, `starting`, `stopped` (it runs and copies nothing), `down` or `held`.

    `copies` is the status of its guard's health check of it: 0 where the guard refuses, None where it hangs.
    """
    if MIRROR in site.journal.held():
        return "held"
    mirror = processes.get(MIRROR)
    if mirror is None or not mirror.running:
        return "down"
    if mirror.ready:
        return "ready"
    return "unknown" if copies is None else "stopped" if copies == 503 else "starting"


def workers(control: Control, service: str) -> list[str]:
    """The names of a service's workers, one for each slot."""
    return instances(WORKERS[service], control.layout(service).slots)


def worker_health(site: Site, worker: str) -> tuple[bool, Mapping[str, Any]]:
    """Whether the worker is ready, and the body of its response; empty where it does not respond."""
    response = _get(f"{site.settings.health_url(worker)}/health/ready")
    return (False, {}) if response is None else (response.status_code == 200, response.json())


def _worker(site: Site, name: str) -> str:
    """The worker's own word, `active`, `standby`, …; otherwise the reason why it is not ready."""
    ready, body = worker_health(site, name)
    if not body:
        return "silent"
    return str(body["status"]) if ready else str(body.get("reason", "not ready"))


def read_models(site: Site) -> dict[str, ReadModelView]:
    """Empty where the query API does not respond."""
    response = _get(f"{site.settings.url('query-api')}/projections", caller_of(site.settings).headers())
    if response is None or response.status_code != 200:
        return {}
    return {model["read_model"]: _read_model(model["partitions"]) for model in response.json()["projections"]}


def _read_model(partitions: Sequence[Mapping[str, Any]]) -> ReadModelView:
    if any(part["lag_events"] is None for part in partitions):
        return ReadModelView(None, None)
    return ReadModelView(
        sum(part["lag_events"] for part in partitions), max(part["lag_seconds"] for part in partitions)
    )


def _ways(sites: Mapping[str, Site]) -> Iterator[tuple[Site, Site]]:
    """From which site a mirror copies to which: into the active one it is held."""
    for target in sites.values():
        if MIRROR not in target.journal.held():
            yield from ((source, target) for source in sites.values() if source.name != target.name)


def _way(sites: Sequence[str], roles: Mapping[str, str]) -> tuple[str, str] | None:
    """From which site to which; None where both are active. If one is silent, the other's role determines it."""
    active = [name for name, role in roles.items() if role == "active"]
    passive = [name for name, role in roles.items() if role == "passive"]
    source = active or [name for name in sites if [name] != passive][:1]
    target = [name for name in sites if name not in source[:1]]
    return None if len(sites) < 2 or not target or len(active) > 1 else (source[0], target[0])


def _lag(source: Site, target: Site) -> MirrorView:
    with MirrorMeter(source.link, target.bootstrap, source.name) as meter:
        lag = meter.read(VIEW_SECONDS)
    return MirrorView(source.name, target.name, lag.total, lag.oldest_seconds, exact=lag.exact)


def _seen(sites: Mapping[str, Site]) -> dict[str, str]:
    """When each site's broker responded to the router last; empty where there is no router."""
    home = home_settings(next(iter(sites.values())).settings)
    response = _get(f"{home.health_url(ROUTER)}/metrics")
    families = text_string_to_metric_families(response.text) if response is not None else ()
    return {
        sample.labels["site"]: datetime.fromtimestamp(sample.value, UTC).isoformat(timespec="seconds")
        for family in families
        for sample in family.samples
        if sample.name == HEARD
    }


def canary_delay(site: Site) -> float | None:
    """The delay of the mirror into the site in seconds, as its guard measures it; None where it is unknown."""
    response = _get(f"{site.settings.health_url('guard')}/mirror")
    if response is None or response.status_code != 200:
        return None
    return msgspec.json.decode(response.content, type=MirrorStatus).delay_seconds


def _get(url: str, headers: Mapping[str, str] = MappingProxyType({})) -> httpx.Response | None:
    try:
        return local_http().get(url, headers=headers, timeout=ANSWER_SECONDS, follow_redirects=True)
    except httpx.HTTPError:
        return None
