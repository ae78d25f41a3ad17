"""What `daybook sites` shows: roles, the mirror's exact lag, read models, standbys; any may be unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from infra.base.http import local_http
from infra.dr.mirror_position import mirror_lag
from infra.log.asking import SiteSilent, ask
from infra.stack.link import read_link
from infra.stack.platform import Platform, platform_of
from infra.stack.shop import MIRROR
from infra.stack.site import Site

WORKERS = ("order-worker", "inventory-worker")
ANSWER_SECONDS = 2.0
LAG_SECONDS = 10.0
CANARY_DELAY = "daybook_mirror_delay_seconds"


class ReadModelView(msgspec.Struct, frozen=True):
    """How far it is behind the site's own log; None where the query API does not know."""

    events: int | None
    seconds: float | None


class SiteView(msgspec.Struct, frozen=True):
    """One site. `role` is empty, `epoch` 0 where its broker is silent; `workers`: its own words."""

    name: str
    up: bool
    role: str
    epoch: int
    hold: str
    link: str
    mirror: str
    canary_seconds: float | None
    read_models: Mapping[str, ReadModelView]
    workers: Mapping[str, str]


class MirrorView(msgspec.Struct, frozen=True):
    """From `source` to `target`. `events` and `seconds` are null where a site cannot be reached."""

    source: str
    target: str
    events: int | None
    seconds: float | None
    reason: str = ""


class SitesView(msgspec.Struct, frozen=True):
    sites: list[SiteView]
    mirror: MirrorView | None


def overview(sites: Mapping[str, Site]) -> SitesView:
    """Ask every process; silence is an answer too."""
    with ThreadPoolExecutor(len(sites)) as pool:
        views = list(pool.map(_site, sites.values()))
    active = [view.name for view in views if view.role == "active"]
    passive = [view.name for view in views if view.role == "passive"]
    # With one of the two silent the other's role tells which way the mirror goes.
    source = active or [name for name in sites if [name] != passive][:1]
    target = [name for name in sites if name not in source[:1]]
    if len(sites) < 2 or not target or len(active) > 1:
        return SitesView(views, None)
    return SitesView(views, _mirror(sites[source[0]], sites[target[0]]))


def _site(site: Site) -> SiteView:
    platform = platform_of(site.settings)
    try:
        control = ask(site.bootstrap, ANSWER_SECONDS)
        said: tuple[str, int, str] = control.role.role, control.role.epoch, control.held
    except SiteSilent:
        said = "", 0, ""
    return SiteView(
        site.name,
        platform.up(site),
        *said,
        str(read_link(site.link_state)),
        mirror_state(platform, site),
        _canary(site),
        read_models(site),
        {name: _worker(site, name) for name in WORKERS},
    )


def mirror_state(platform: Platform, site: Site) -> str:
    """The mirror into the site: `ready`, `starting`, `down` or `held`."""
    if MIRROR in platform.held(site):
        return "held"
    mirror = platform.processes(site).get(MIRROR)
    if mirror is None or not mirror.running:
        return "down"
    return "ready" if mirror.ready else "starting"


def _worker(site: Site, name: str) -> str:
    """`active`, `standby`, … as the worker says it; else why it is not ready."""
    answer = _get(f"{site.settings.url(name)}/health/ready")
    if answer is None:
        return "silent"
    body: dict[str, Any] = answer.json()
    return str(body["status"]) if answer.status_code == 200 else str(body.get("reason", "not ready"))


def read_models(site: Site) -> dict[str, ReadModelView]:
    """Empty where the query API does not answer."""
    answer = _get(f"{site.settings.url('query-api')}/projections")
    if answer is None or answer.status_code != 200:
        return {}
    return {model["read_model"]: _read_model(model["partitions"]) for model in answer.json()["projections"]}


def _read_model(partitions: Sequence[Mapping[str, Any]]) -> ReadModelView:
    if any(part["lag_events"] is None for part in partitions):
        return ReadModelView(None, None)
    return ReadModelView(
        sum(part["lag_events"] for part in partitions), max(part["lag_seconds"] for part in partitions)
    )


def _canary(site: Site) -> float | None:
    answer = _get(f"{site.settings.url('guard')}/metrics")
    if answer is None:
        return None
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            if sample.name == CANARY_DELAY and sample.value == sample.value:  # NaN: not known
                return float(sample.value)
    return None


def _mirror(source: Site, target: Site) -> MirrorView:
    try:
        lag = mirror_lag(source.link, target.bootstrap, source.name, LAG_SECONDS)
    except TimeoutError as reason:
        return MirrorView(source.name, target.name, None, None, str(reason))
    return MirrorView(source.name, target.name, lag.total, lag.oldest_seconds)


def _get(url: str) -> httpx.Response | None:
    try:
        return local_http().get(url, timeout=ANSWER_SECONDS, follow_redirects=True)
    except httpx.HTTPError:
        return None
