"""What an operator is told before a promotion without the other site, and when its name must be typed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from infra.base.settings import StackSettings
from infra.dr.last_lag import LastLag, forecast, in_words, last_known, staleness
from infra.dr.mirror import MirrorLag
from infra.dr.mirror_watch import lag_by_topic
from infra.stack.site import Site
from tests.ports import free_base

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
BEHIND = LastLag("home", 2, NOW - 12 * SECOND, 8.1, {"order.events": 300, "inventory.events": 180, "x": 0})


def test_a_forecast_names_what_is_known_and_what_is_not() -> None:
    assert forecast("home", "away", BEHIND, NOW) == (
        "home was last heard 12.0 s ago, at 2027-01-15T07:59:48Z, 8.1 s ahead: about 480 events (inventory.events 180, "
        "order.events 300) were not at away. What home acknowledged after that is not known and would be lost."
    )


def test_a_count_that_includes_markers_is_an_upper_bound() -> None:
    bound = msgspec.structs.replace(BEHIND, exact=False)
    assert "at most 480 events" in forecast("home", "away", bound, NOW)


def test_a_mirror_that_had_caught_up_promises_nothing_about_later() -> None:
    level = msgspec.structs.replace(BEHIND, seconds=0.0, events={"order.events": 0})
    text = forecast("home", "away", level, NOW)
    assert "away had all that was committed then" in text
    assert "acknowledged after that is not known" in text
    assert "It is not known" in forecast("home", "away", None, NOW)


@pytest.mark.parametrize(
    ("last", "epoch", "reason"),
    [
        (BEHIND, 2, None),
        (None, 2, "not known"),
        (BEHIND, 3, "epoch 2, and the site is in epoch 3"),
        (msgspec.structs.replace(BEHIND, measured_at=NOW - 592 * SECOND), 2, "the last 10 min"),
        (msgspec.structs.replace(BEHIND, measured_at=NOW - 591 * SECOND), 2, None),
        (msgspec.structs.replace(BEHIND, seconds=4 * 3600.0), 2, "the last 4.0 h"),
    ],
)
def test_a_site_with_an_old_log_is_stale(last: LastLag | None, epoch: int, reason: str | None) -> None:
    why = staleness(last, epoch, NOW)
    assert (why is None) == (reason is None)
    assert reason is None or reason in str(why)


def test_a_lag_is_summed_by_topic() -> None:
    measured = MirrorLag({("order.events", 0): 2, ("order.events", 1): 3, ("order.answers", 0): 0}, 0.5)
    assert lag_by_topic(measured, "home", 1, NOW) == LastLag(
        "home", 1, NOW, 0.5, {"order.events": 5, "order.answers": 0}
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0.0 s"), (99.9, "99.9 s"), (600, "10 min"), (7200, "2.0 h")]
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


def test_nothing_is_known_while_the_database_is_away(tmp_path: Path) -> None:
    assert last_known(Site(StackSettings(home=tmp_path, port_base=free_base()))) is None
