"""Going back after a loss, under load: the old site is rebuilt, and nothing is lost or copied twice."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import msgspec

from infra.dr.failback import Failback
from infra.dr.plan import controls
from infra.dr.steps import Show
from infra.lab.drills.acknowledged import longest_gap
from infra.lab.drills.damage import Kind
from infra.lab.drills.following import Following
from infra.lab.drills.judging import judge, not_logged
from infra.lab.drills.load import Load
from infra.lab.drills.pair import Pair
from infra.lab.drills.planned import WITHOUT_WRITES_SECONDS, check_equal
from infra.lab.drills.probe import ReadProbe
from infra.lab.drills.report import DrillReport, step_line, write
from infra.lab.drills.shopping import Shopping
from infra.lab.drills.unplanned import unplanned
from infra.lab.retail.requests import Api
from infra.stack.shop import MIRROR
from infra.stack.site import Site
from services.kernel.record.envelope import format_time, now_micros

WARM_SECONDS = 3.0
AFTER_SECONDS = 8.0


def failback(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill. Where both sites are well, one is lost first. Raises DrillFailed."""
    story = []
    if not _one_lost(pair):
        before = unplanned(pair, seed, folder / "loss", show, Kind.DEAD)
        write(before, folder / "loss")
        story = [
            f"First a site was lost: {'all held' if before.passed else 'NOT all held'} in {folder}/loss."
        ]
    report = go_back(pair, seed, folder, show)
    report.story[:0] = story
    return report


def go_back(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """After an unplanned failover: rebuild the site that is not active, and switch to it, under load."""
    report = DrillReport("failback", seed, format_time(now_micros()))
    chance = Random(f"failback {seed}")
    active, epoch = _active(pair)
    old = pair.other(active)
    load = Load(pair.urls(), active.name, Shopping(seed, f"b{seed}-{epoch}"), folder / "told.jsonl")
    with ReadProbe(pair.urls()[active.name][Api.QUERY]) as reads, load:
        show("clients at work")
        time.sleep(WARM_SECONDS + chance.uniform(0, 3))
        show(f"failback to {old.name}")
        with Following(load, old, epoch):
            said = pair.run("failback", "--json")
        time.sleep(AFTER_SECONDS)
        unanswered = load.finish()
    done = msgspec.json.decode(said, type=Failback, dec_hook=lambda _, text: Path(text))
    report.story += [
        f"{active.name} was active in epoch {epoch}; {len(load.told)} commands were answered in all.",
        "`daybook failback` was typed.",
        *map(step_line, (*done.steps, *done.switchover.steps)),
    ]
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    gap = longest_gap((each.at for each in load.told), load.told[0].at)[0]
    report.at_most("seconds without acknowledged writes", gap, WITHOUT_WRITES_SECONDS)
    report.at_most("longest time without reads at the site that stayed", reads.gap(), WITHOUT_WRITES_SECONDS)
    report.nothing("acknowledged writes lost", not_logged(old.bootstrap, load.told))
    show("coming to rest")
    pair.await_rest(old)
    judge(report, old.bootstrap, load.told, database_url=old.database_url)
    show("comparing both sites")
    pair.await_mirrored(old, active)
    check_equal(report, pair)
    return report


def _active(pair: Pair) -> tuple[Site, int]:
    """The active site of the newest epoch; the other may be down."""
    said = controls(pair.sites)
    epochs = {name: each.role.epoch for name, each in said.items() if each and each.role.role == "active"}
    name = max(epochs, key=lambda name: epochs[name])
    return pair.sites[name], epochs[name]


def _one_lost(pair: Pair) -> bool:
    """Whether an unplanned failover has left a site behind: no mirror follows the active one."""
    active, _ = _active(pair)
    return MIRROR in pair.platform.held(pair.other(active))
