"""A rebuild and a planned switchover wait for the mirror, although a site is too busy to say how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.base.errors import NotDone
from infra.base.settings import StackSettings
from infra.dr import failover, rebuild
from infra.dr.mirror import MirrorLag, MirrorMeter
from infra.dr.plan import Steps
from infra.stack.site import Site, sites_of

BUSY = TimeoutError("the source of the mirror does not respond: the end of the log was not reached in time")


class BusyMeter(MirrorMeter):
    """It is silent once, then five events behind, then level."""

    def __init__(self, *_: object) -> None:
        self._lags: Iterator[int | TimeoutError] = iter((BUSY, 5, 0))

    def close(self) -> None:
        return

    def read(self, _seconds: float = 30.0) -> MirrorLag:
        lag = next(self._lags)
        if isinstance(lag, TimeoutError):
            raise lag
        return MirrorLag({("order.events", 0): lag}, 0.0)


class FarMeter(BusyMeter):
    """It is five events behind, and stays so."""

    def read(self, _seconds: float = 30.0) -> MirrorLag:
        return MirrorLag({("order.events", 0): 5}, 0.0)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, Site]:
    (tmp_path / "away").mkdir()
    sites = sites_of(StackSettings(home=tmp_path, port_base=20_000))
    for module in (failover, rebuild):
        monkeypatch.setattr(module, "MirrorMeter", BusyMeter)
    monkeypatch.setattr(rebuild, "about_events", lambda _: 7)
    return sites["home"], sites["away"]


def test_a_rebuild_waits_for_a_busy_site(pair: tuple[Site, Site]) -> None:
    shown: list[str] = []
    assert rebuild._await_mirror(*pair, shown.append) == 5
    assert shown == ["7 events at away, 5 to go"]


def test_a_planned_switchover_waits_for_a_busy_site(pair: tuple[Site, Site]) -> None:
    steps = Steps(lambda _: None)
    failover._prove_caught_up(*pair, steps)
    assert [step.detail for step in steps.done] == ["0 events behind"]


def test_the_look_before_a_switchover_forgives_a_busy_site(
    pair: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "mirror_running", lambda _: True)
    steps = Steps(lambda _: None)
    failover._look_at_mirror(*pair, steps)
    assert [step.detail for step in steps.done] == ["5 events behind"]


def test_the_look_before_a_switchover_refuses_a_mirror_that_is_far_behind(
    pair: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "mirror_running", lambda _: True)
    monkeypatch.setattr(failover, "MOST_LAG", 4)
    monkeypatch.setattr(failover, "LOOK_SECONDS", -1.0)
    monkeypatch.setattr(failover, "MirrorMeter", FarMeter)
    with pytest.raises(
        NotDone, match=r"too far behind \(events: 5\): wait until `./daybook sites` shows less"
    ):
        failover._look_at_mirror(*pair, Steps(lambda _: None))
