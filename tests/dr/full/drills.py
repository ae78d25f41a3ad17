"""Drills that no operator rehearses: brokers that restart, a database that is gone."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from random import Random

from infra.base.journal import MemberState
from infra.dr.steps import Show
from infra.lab.drills.load import Load
from infra.lab.drills.mirror import judge_passive
from infra.lab.drills.pair import Pair
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from infra.stack.site import Site
from services.kernel.record.envelope import format_time, now_micros
from tests.integration.sites.rig import eventually

BACK_SECONDS = 120.0


def brokers_restart(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """kill -9 of the active site's broker under load, then of the passive one's: nothing lost or doubled."""
    chance = Random(f"brokers {seed}")
    report = DrillReport("brokers-restart", seed, format_time(now_micros()))
    active, passive, epoch = pair.roles()
    shopping = Shopping(seed, f"r{seed}-{epoch}")
    load = Load(pair.urls(), active.name, shopping, folder / "told.jsonl")
    with load:
        for site in (active, passive):
            time.sleep(chance.uniform(2, 5))
            show(f"the broker of {site.name} dies")
            before = member(site, "broker")
            assert before.pid is not None
            os.killpg(before.pid, signal.SIGKILL)
            eventually(lambda site=site, before=before: back(site, before), BACK_SECONDS)  # type: ignore[misc]
        time.sleep(5)
        unanswered = load.finish()
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    judge_passive(pair, report, active, passive, load, show)
    return report


def database_is_lost(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """The passive site's PostgreSQL is gone under load, and is built again from the log alone."""
    report = DrillReport("database-lost", seed, format_time(now_micros()))
    active, passive, epoch = pair.roles()
    shopping = Shopping(seed, f"d{seed}-{epoch}")
    load = Load(pair.urls(), active.name, shopping, folder / "told.jsonl")
    with load:
        time.sleep(3)
        show(f"{passive.name} is stopped, its database removed, and started")
        pair.run("--site", passive.name, "down")
        shutil.rmtree(passive.settings.home / "postgres")
        pair.run("--site", passive.name, "up")
        time.sleep(3)
        unanswered = load.finish()
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    judge_passive(pair, report, active, passive, load, show)
    return report


def member(site: Site, name: str) -> MemberState:
    state = site.journal.read()
    assert state is not None
    return next(each for each in state.members if each.name == name)


def back(site: Site, before: MemberState) -> bool:
    now = member(site, before.name)
    return now.ready and now.restarts > before.restarts
