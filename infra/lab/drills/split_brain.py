"""Two living sites, cut off from each other, both with clients: what the old one does on its return."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from infra.dr.losses import Report
from infra.dr.reconcile import load as load_report
from infra.dr.steps import Show
from infra.lab.drills.acknowledged import Acknowledgement
from infra.lab.drills.damage import cut, heal
from infra.lab.drills.judging import described, judge, missing
from infra.lab.drills.load import Load
from infra.lab.drills.pair import Pair
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from infra.lab.drills.unplanned import await_passive
from infra.stack.shop import MIRROR
from infra.stack.site import Site
from services.kernel.record.envelope import format_time, now_micros

STAND_DOWN_SECONDS = 10.0
RATE = 30.0  # of each group of clients
WARM = (4.0, 8.0)
APART = (4.0, 9.0)
WATCHED_SECONDS = 6.0


@dataclass(frozen=True)
class Sides:
    """Who is cut off from whom, in the epoch before."""

    old: Site
    new: Site
    epoch: int


def split_brain(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill; the pair is left with the other site active, the old one to be rebuilt."""
    chance, report = (
        Random(f"split-brain {seed}"),
        DrillReport("split-brain", seed, format_time(now_micros())),
    )
    sides = Sides(*pair.roles())
    pair.await_mirrored(sides.old, sides.new)
    name = f"s{seed}-{sides.epoch}"
    show("clients at work")
    stay = Load(pair.urls(), sides.old.name, Shopping(seed, f"{name}-old"), folder / "told-old.jsonl", RATE)
    shopping = Shopping(seed, f"{name}-new")
    moved = Load(pair.urls(), sides.new.name, shopping, folder / "told-new.jsonl", RATE)
    with ExitStack() as clients:
        clients.enter_context(stay)
        time.sleep(chance.uniform(*WARM))
        show("cut off from each other")
        cut(pair)
        pair.run("failover", "--unplanned", "--to", sides.new.name)
        promoted = time.time()
        clients.enter_context(moved)
        time.sleep(chance.uniform(*APART))
        show("they see each other again")
        healed = time.time()
        heal(pair)
        await_passive(pair, sides.old, sides.epoch + 1)
        stood_down = time.time()
        time.sleep(WATCHED_SECONDS)
        stay.switch(sides.new.name)
        unanswered = [*stay.finish(), *moved.finish()]
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    _returned(report, sides, stay.told, promoted, healed, stood_down)
    lost = _lost(pair, folder)
    _listed(report, sides, stay, lost)
    held = MIRROR in pair.platform.held(sides.new)
    report.promise("the mirror into the new site", "held for good", "held" if held else "runs", held)
    pair.run("failover", "reconcile", "--reissue-all")
    show("coming to rest")
    pair.await_rest(sides.new)
    judge(report, sides.new.bootstrap, [*stay.told, *moved.told], lost, sides.new.database_url)
    return report


def _returned(
    report: DrillReport,
    sides: Sides,
    told: list[Acknowledgement],
    promoted: float,
    healed: float,
    stood_down: float,
) -> None:
    by_old = [each.at for each in told if each.site == sides.old.name and each.accepted]
    between = sum(promoted < at < healed for at in by_old)
    report.figures["acknowledged by the old site after the promotion, cut off"] = between
    last = max(0.0, max(by_old, default=healed) - healed)
    report.at_most("from contact to the old site's last acknowledgement", last, STAND_DOWN_SECONDS)
    late = [each.command_id for each in told if each.site == sides.old.name and each.at > stood_down + 1]
    report.nothing("answered by the old site after it stood down", late)
    report.story += [
        f"{sides.old.name} and {sides.new.name} were cut off, and {sides.new.name} was promoted.",
        f"{sides.old.name} acknowledged {between} more commands of its own clients meanwhile.",
        f"They saw each other again; {sides.old.name} acknowledged its last command {last:.2f} s later, and "
        f"{stood_down - healed:.2f} s later both its workers stood by.",
    ]


def _lost(pair: Pair, folder: Path) -> Report:
    pair.run("failover", "report", "--out", str(folder / "lost.json"))
    return load_report(folder / "lost.json")


def _listed(report: DrillReport, sides: Sides, stay: Load, lost: Report) -> None:
    found = missing(sides.new.bootstrap, stay.told, sides.epoch + 1, lost, stay.sent)
    report.figures["acknowledged commands lost"] = len(found.commands)
    report.nothing("acknowledged, lost and not in the report", list(found.unlisted))
    report.nothing("in the report, yet not lost", list(found.unexplained))
    report.lost = [described(each) for each in lost.acknowledged if each.events]
