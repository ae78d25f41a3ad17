"""What the passive site knows of its mirror while the mirror is frozen, and after the other site is lost."""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.dr.last_lag import LastLag
from infra.dr.mirror_watch import MirrorStatus
from infra.dr.overview import mirror_state
from infra.stack.platform import platform_of
from infra.stack.shop import health
from tests.integration.sites.rig import TwoSites, eventually, two_sites
from tests.integration.sites.test_mirror import write


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoSites]:
    folder: Path = tmp_path_factory.mktemp("sites") / "home"
    with two_sites(folder, "broker", "postgres", "link", "guard", "mirror") as stack:
        eventually(lambda: stack.member(stack.away, "mirror")[1])
        yield stack


def status(stack: TwoSites) -> MirrorStatus:
    url = f"{stack.away.settings.health_url('guard')}/mirror"
    return msgspec.json.decode(httpx.get(url).content, type=MirrorStatus)


def metrics(stack: TwoSites) -> dict[str, float]:
    """The sum of the samples of each of the mirror's metrics."""
    text = httpx.get(f"{stack.away.settings.health_url('guard')}/metrics").text
    families = [f for f in text_string_to_metric_families(text) if f.name.startswith("daybook_mirror_")]
    return {f.name.removeprefix("daybook_mirror_"): sum(s.value for s in f.samples) for f in families}


def pid(stack: TwoSites, name: str) -> int:
    number, _ = stack.member(stack.away, name)
    assert number is not None
    return number


def total(lag: LastLag | None) -> int | None:
    return None if lag is None else lag.total


def logged(stack: TwoSites) -> list[str]:
    """The changes that the guard logged."""
    log = (stack.away.settings.logs / "guard.log").read_text()
    return ["", *re.findall(r"mirror_(?:late|unknown|in_time)", log)]


def shown(stack: TwoSites) -> str:
    copies = health(stack.away.settings.health_url("guard"), "mirror") or 0
    return mirror_state(stack.away, platform_of(stack.away.settings).processes(stack.away), copies)


@pytest.mark.full
def test_the_lag_is_exact_while_the_mirror_is_frozen_and_kept_when_the_source_is_lost(
    stack: TwoSites,
) -> None:
    eventually(lambda: status(stack).state == "in_time")
    assert metrics(stack).keys() >= {"known", "delay_seconds", "lag_seconds", "lag_events"}

    os.kill(pid(stack, "mirror"), signal.SIGSTOP)
    eventually(lambda: status(stack).state == "late")
    eventually(lambda: logged(stack)[-1] == "mirror_late")
    eventually(lambda: shown(stack) == "stopped")
    # the supervisor starts it anew
    eventually(lambda: logged(stack)[-1] == "mirror_in_time")

    changes = logged(stack)
    assert all(change != later for change, later in itertools.pairwise(changes))

    stack.away.journal.keep_down("mirror")
    eventually(lambda: stack.member(stack.away, "mirror") == (None, False))
    write(stack.home.bootstrap, range(11))
    write(stack.home.bootstrap, range(11, 20), commit=False)
    write(stack.home.bootstrap, range(20, 24))
    eventually(lambda: total(status(stack).lag) == 15)
    eventually(lambda: status(stack).state == "late")
    assert metrics(stack)["lag_events"] == 15
    stack.home.journal.keep_down("broker")
    eventually(lambda: status(stack).state == "unknown")
    assert metrics(stack).keys() == {"known", "last_known_age_seconds"}
    assert total(status(stack).last) == 15
    os.kill(pid(stack, "guard"), signal.SIGKILL)
    eventually(lambda: not stack.member(stack.away, "guard")[1])
    eventually(lambda: stack.member(stack.away, "guard")[1] and status(stack).last is not None)
    assert total(status(stack).last) == 15
