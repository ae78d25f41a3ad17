"""Two living sites, cut off from each other, both with clients: what the old one does on its return."""

from __future__ import annotations

import time
from dataclasses import dataclass

from infra.dr.losses import Report
from infra.dr.reconcile import load as load_report
from infra.lab.drills.damage import cut, heal
from infra.lab.drills.drill import Clients, Course, Drill, all_answered, whole
from infra.lab.drills.judging import described, judge, missing
from infra.lab.drills.load import Load
from infra.lab.drills.unplanned import await_passive
from infra.stack.shop import MIRROR

STAND_DOWN_SECONDS = 10.0
RATE = 30.0  # of each group of clients
OLD_CLIENTS, NEW_CLIENTS = Clients("s", "-old", RATE), Clients("s", "-new", RATE)
WARM = (4.0, 8.0)
APART = (4.0, 9.0)
WATCHED_SECONDS = 6.0


@dataclass
class Apart:
    """Two sites that wrote: the clients of the old and of the new one, and when (seconds since 1970) the new one was
    promoted, both saw each other again, and the old one stood by. `lost` is what did not cross."""

    stay: Load
    moved: Load
    promoted: float
    healed: float
    stood_down: float
    lost: Report | None = None


def _cut_off(course: Course) -> Apart:
    pair, old, new = course.pair, course.sides.active, course.sides.other
    course.sleep(WARM)
    course.show("cut off from each other")
    cut(pair)
    pair.run("failover", "--unplanned", "--to", new.name)
    promoted = time.time()
    moved = course.start(NEW_CLIENTS, new)
    course.sleep(APART)
    course.show("they see each other again")
    healed = time.time()
    heal(pair)
    await_passive(pair, old, course.sides.epoch + 1)
    stood_down = time.time()
    time.sleep(WATCHED_SECONDS)
    course.load.switch(new.name)
    return Apart(course.load, moved, promoted, healed, stood_down)


def _old_site_stands_down(course: Course, apart: Apart) -> None:
    report, old, new, told = course.report, course.sides.active, course.sides.other, apart.stay.told
    promoted, healed, stood_down = apart.promoted, apart.healed, apart.stood_down
    by_old = [each.at for each in told if each.site == old.name and each.accepted]
    between = sum(promoted < at < healed for at in by_old)
    report.figures["acknowledged by the old site after the promotion, cut off"] = between
    last = max(0.0, max(by_old, default=healed) - healed)
    report.at_most("from contact to the old site's last acknowledgement", last, STAND_DOWN_SECONDS)
    late = [each.command_id for each in told if each.site == old.name and each.at > stood_down + 1]
    report.nothing("answered by the old site after it stood down", late)
    report.story += [
        f"{old.name} and {new.name} were cut off, and {new.name} was promoted.",
        f"{old.name} acknowledged {between} more commands of its own clients meanwhile.",
        f"They saw each other again; {old.name} acknowledged its last command {last:.2f} s later, and "
        f"{stood_down - healed:.2f} s later both its workers stood by.",
    ]


def _losses_are_listed(course: Course, apart: Apart) -> None:
    report, new, stay, file = course.report, course.sides.other, apart.stay, course.run.folder / "lost.json"
    course.pair.run("failover", "report", "--out", str(file))
    lost = apart.lost = load_report(file)
    found = missing(new.bootstrap, stay.told, course.sides.epoch + 1, lost, stay.sent)
    report.figures["acknowledged commands lost"] = len(found.commands)
    report.nothing("acknowledged, lost and not in the report", list(found.unlisted))
    report.nothing("in the report, yet not lost", list(found.unexplained))
    report.lost = [described(each) for each in lost.acknowledged if each.events]
    held = MIRROR in course.pair.platform.held(new)
    report.promise("the mirror into the new site", "held for good", "held" if held else "runs", held)


def _log_is_sound(course: Course, apart: Apart) -> None:
    pair, new, told = course.pair, course.sides.other, [*apart.stay.told, *apart.moved.told]
    pair.run("failover", "reconcile", "--reissue-all")
    course.show("coming to rest")
    pair.await_rest(new)
    judge(course.report, new.bootstrap, told, apart.lost, new.database_url)


SPLIT_BRAIN = Drill(
    "split-brain",
    "Disconnect two live sites, promote the passive one, reconnect them: the old one must stop writing.",
    rig=whole,
    clients=OLD_CLIENTS,
    faults=_cut_off,
    promises=(all_answered, _old_site_stands_down, _losses_are_listed, _log_is_sound),
)
