"""Drills that no operator rehearses: brokers that restart, a database that is gone."""

from __future__ import annotations

import os
import shutil
import signal
import time
from functools import partial

from infra.base.journal import MemberState
from infra.lab.drills.drill import Clients, Course, Drill, all_have_outcomes
from infra.lab.drills.mirror import passive_is_sound
from infra.lab.drills.pair import Sides, both_sites
from infra.stack.site import Site
from tests.integration.sites.rig import eventually

BACK_SECONDS = 120.0
BEFORE, AFTER_SECONDS = (2.0, 5.0), 5.0


def _restart_brokers(course: Course[Sides]) -> None:
    for site in (course.rig.active, course.rig.other):
        course.sleep(BEFORE)
        course.show(f"the broker of {site.name} dies")
        before = member(site, "broker")
        assert before.pid is not None
        os.killpg(before.pid, signal.SIGKILL)
        eventually(partial(back, site, before), BACK_SECONDS)
    time.sleep(AFTER_SECONDS)


def _lose_the_database(course: Course[Sides]) -> None:
    pair, passive = course.rig.pair, course.rig.other
    course.sleep(BEFORE)
    course.show(f"{passive.name} is stopped, its database removed, and started")
    pair.run("--site", passive.name, "down")
    shutil.rmtree(passive.settings.home / "postgres")
    pair.run("--site", passive.name, "up")
    time.sleep(AFTER_SECONDS)


def member(site: Site, name: str) -> MemberState:
    state = site.journal.read()
    assert state is not None
    return next(member for member in state.members if member.name == name)


def back(site: Site, before: MemberState) -> bool:
    now = member(site, before.name)
    return now.ready and now.restarts > before.restarts


BROKERS_RESTART = Drill(
    "brokers-restart",
    "kill -9 of the active site's broker under load, then of the passive one's: nothing lost or doubled.",
    rig=both_sites,
    clients=Clients("r"),
    faults=_restart_brokers,
    promises=(all_have_outcomes, passive_is_sound),
)
DATABASE_LOST = Drill(
    "database-lost",
    "The passive site's PostgreSQL is gone under load, and is built again from the log alone.",
    rig=both_sites,
    clients=Clients("d"),
    faults=_lose_the_database,
    promises=(all_have_outcomes, passive_is_sound),
)
