"""When a mirror is late, what is logged of it, and which metrics are absent; Prometheus' rules say the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import yaml

from infra.dr.last_lag import LastLag
from infra.dr.mirror_watch import (
    ALARM_SECONDS,
    EVERY_SECONDS,
    LATE_SECONDS,
    MirrorAlarm,
    MirrorMetrics,
    MirrorState,
    MirrorStatus,
)
from tests.unit.sites.test_pulse import Clock

MONITORING = Path(__file__).parents[3] / "infra" / "monitoring"
LAST = LastLag("home", 1, 1_800_000_000_000_000, 3.5, {"order.events": 7, "order.answers": 0})
IN_TIME = MirrorStatus("away", "home", "in_time", 0.1, LAST, LAST, 0.4)
UNKNOWN = MirrorStatus("away", "home", "unknown", last=LAST, last_age_seconds=61.0)


def logged(states: list[MirrorState], seconds: float = 1.0) -> list[str]:
    """The log lines when these states come, each for `seconds`."""
    clock = Clock()
    alarm = MirrorAlarm(clock)
    with structlog.testing.capture_logs() as lines:
        for state in states:
            alarm.look(msgspec.structs.replace(IN_TIME, state=state))
            clock.now += seconds
    return [line["event"] for line in lines]


@pytest.mark.parametrize(
    ("states", "lines"),
    [
        (["late"] * 5, []),
        (["late"] * 60, ["mirror_late"]),
        (["unknown"] * 60, ["mirror_unknown"]),
        (["late"] * 3 + ["unknown"] * 3, ["mirror_unknown"]),
        (
            ["late"] * 9 + ["unknown"] * 9 + ["in_time"] * 9,
            ["mirror_late", "mirror_unknown", "mirror_in_time"],
        ),
        (["late", "in_time"] * 30, []),
    ],
)
def test_a_change_that_lasts_is_logged_once(states: list[MirrorState], lines: list[str]) -> None:
    assert logged(states) == lines


def samples(status: MirrorStatus) -> dict[str, float]:
    return {
        "/".join([sample.name.removeprefix("daybook_mirror_"), *sample.labels.values()]): sample.value
        for family in MirrorMetrics(lambda: status).collect()
        for sample in family.samples
    }


def test_what_is_not_known_is_absent() -> None:
    assert samples(IN_TIME) == {
        "known": 1,
        "delay_seconds": 0.1,
        "lag_seconds": 3.5,
        "lag_events/order.events": 7,
        "lag_events/order.answers": 0,
        "last_known_age_seconds": 0.4,
    }
    assert samples(UNKNOWN) == {"known": 0, "last_known_age_seconds": 61.0}
    assert samples(MirrorStatus("home", "away", "active")) == {}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"]
    assert group["interval"] == f"{EVERY_SECONDS:.0f}s"
    return list(group["rules"])


def test_prometheus_has_the_same_limits_and_metrics_that_exist() -> None:
    late, seen, silent = rules()
    assert late["for"] == silent["for"] == f"{ALARM_SECONDS:.0f}s"
    used = set(re.findall(r"daybook_mirror_(\w+)", late["expr"]))
    assert used == {"delay_seconds", "lag_seconds", "known"}
    assert used <= samples(IN_TIME).keys()
    assert re.findall(r"_seconds > (\d+)", late["expr"]) == [f"{LATE_SECONDS:.0f}"] * 2
    jobs = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    (guards,) = (job for job in jobs if job["job_name"] == "guards")
    up = f'up{{job="{guards["job_name"]}"}}'
    assert f"{up} == 1 or " in seen["expr"] and f"{up} == 0 and " in silent["expr"]


def test_a_guard_that_was_up_once_is_remembered_for_ever() -> None:
    """An alarm that looks back over a span of time ends with it, while the guard is still dead."""
    _, seen, silent = rules()
    assert seen["record"] in seen["expr"], "it must carry itself on from one evaluation to the next"
    assert silent["expr"].endswith(f"and on(instance) {seen['record']}")
    assert "[" not in silent["expr"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_prometheus_raises_the_alarms_in_time() -> None:
    rules_test = Path(__file__).with_name("mirror_alarms.yml")
    done = subprocess.run(
        ["promtool", "test", "rules", rules_test], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
