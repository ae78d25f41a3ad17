"""When a site is up to date: it has what the active site has, not only what its own log has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from infra.base.http import local_http
from infra.base.settings import StackSettings
from infra.cli.sites import _mirror as mirror_line
from infra.cli.sites import _read_models as read_models_cell
from infra.cli.sites import _table as table
from infra.dr.overview import VIEW_SECONDS, MirrorView, ReadModelView, SitesView, SiteView, _behind, overview
from infra.stack.site import Site
from tests.ports import free_base

LEVEL = {"orders": ReadModelView(0, 0.0), "stock": ReadModelView(0, 0.0)}
AWAY = SiteView("away", True, "passive", 1, "", "whole", "ready", 0.02, LEVEL, {"order-worker": "standby"})
HOME = replace(AWAY, name="home", role="active", mirror="held", workers={"order-worker": "active"})
LATE = MirrorView("home", "away", 210_546, 900.0, exact=False)
UNKNOWN = MirrorView("home", "away", None, None, "a site does not respond in time")
LEVEL_MIRROR = MirrorView("home", "away", 0, 0.0)
COUNT = st.none() | st.integers(0, 5)


def cell(site: SiteView, mirror: MirrorView | None) -> str:
    return read_models_cell(replace(site, behind=_behind(site, mirror)))


def test_a_rebuilt_site_that_is_level_with_its_own_empty_log_is_not_up_to_date() -> None:
    assert cell(AWAY, LATE) == "210,546 events behind the active site"
    assert mirror_line(LATE) == "Mirror home to away: at most 210,546 events behind, the oldest 900.00 s old."


@pytest.mark.parametrize("mirror", [UNKNOWN, None, MirrorView("away", "home", 0, 0.0)])
def test_without_the_lag_of_the_mirror_into_it_nobody_knows(mirror: MirrorView | None) -> None:
    assert cell(AWAY, mirror) == "lag unknown"


def test_both_lags_add_up() -> None:
    assert cell(AWAY, LEVEL_MIRROR) == "2 up to date"
    slow = replace(AWAY, read_models={"orders": ReadModelView(7, 1.5), "stock": ReadModelView(3, 2.5)})
    assert cell(slow, replace(LEVEL_MIRROR, events=10)) == "17 events behind the active site"


def test_the_active_site_is_behind_its_own_log_alone() -> None:
    assert cell(HOME, UNKNOWN) == "2 up to date"
    slow = replace(HOME, read_models={"orders": ReadModelView(7, 1.5), "stock": ReadModelView(3, 2.5)})
    assert cell(slow, UNKNOWN) == "3 events, 2.5 s behind"


@given(COUNT, st.lists(COUNT, max_size=3), st.sampled_from(("active", "passive", "")))
def test_unknown_stays_unknown(mirrored: int | None, own: list[int | None], role: str) -> None:
    models = {str(number): ReadModelView(events, 0.0) for number, events in enumerate(own)}
    view = replace(AWAY, role=role, read_models=models)
    behind = _behind(view, replace(LEVEL_MIRROR, events=mirrored))
    if not own or None in own or (role != "active" and mirrored is None):
        assert behind is None
    elif role == "active":
        assert behind == max(events or 0 for events in own)
    else:
        assert behind == (mirrored or 0) + max(events or 0 for events in own)


def test_what_is_silent_says_since_when_if_anybody_saw_it() -> None:
    since = "2026-03-01T12:00:00+00:00"
    silent = replace(AWAY, role="", canary_seconds=None, read_models={}, workers={"order-worker": "silent"})
    names = ("broker", "guard", "query-api", "order-worker")
    seen = replace(silent, silent_since=dict.fromkeys(names, since))
    columns = table(SitesView([silent, seen], None)).columns
    unseen_cells, seen_cells = ([str(text) for text in column.cells] for column in columns[1:])
    assert [text for text in seen_cells if text == f"silent since {since}"] == [f"silent since {since}"] * 4
    assert "silent" in unseen_cells
    assert not [text for text in unseen_cells if "since" in text]


def two_sites(folder: Path) -> dict[str, Site]:
    """Of which nothing runs."""
    base = free_base()
    settings = [
        StackSettings(home=folder / "home", port_base=base, site="home"),
        StackSettings(home=folder / "away", port_base=base + 200, site="away"),
    ]
    return {own.site: Site(own) for own in settings}


@pytest.mark.parametrize("seconds", [0.0, 10 * VIEW_SECONDS])
def test_only_what_is_known_to_be_down_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A Docker engine on a busy machine does not say in time what runs."""

    def up(*_: object) -> bool:
        time.sleep(seconds)
        return False

    monkeypatch.setattr("infra.stack.embedded.platform.EmbeddedPlatform.up", up)
    assert [site.up for site in overview(two_sites(tmp_path)).sites] == [seconds > 0] * 2


def test_a_database_that_hangs_does_not_delay_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last lag is read from the passive site's database, which may be frozen like everything else there."""
    sites = two_sites(tmp_path)
    monkeypatch.setattr("infra.dr.overview.last_known", lambda _: time.sleep(10 * VIEW_SECONDS))
    began = time.monotonic()
    view = overview(sites)
    assert time.monotonic() - began < 3 * VIEW_SECONDS  # it takes ten times as long to wait for it
    assert view.mirror is not None
    assert "no stored measurement could be read" in view.mirror.reason


def test_all_requests_of_the_view_share_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made by the thread of each request, clients take longer than the view may."""
    made = list[httpx.Client]()

    class Counted(httpx.Client):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(httpx, "Client", Counted)
    local_http.cache_clear()
    try:
        overview(two_sites(tmp_path))
    finally:
        local_http.cache_clear()
    assert len(made) == 1
