"""The loss of the active site under load: what is promised of `daybook failover --unplanned`, measured."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from infra.base.waiting import wait_until
from infra.dr.losses import Report
from infra.dr.reconcile import load as load_report
from infra.dr.switchover import Failover
from infra.lab.drills.acknowledged import Acknowledgement, longest_gap
from infra.lab.drills.damage import Damage, Kind, strike, undo
from infra.lab.drills.drill import Clients, Course, Drill, all_answered, whole
from infra.lab.drills.judging import described, judge, missing
from infra.lab.drills.pair import DrillFailed, Pair
from infra.lab.drills.repeats import check_repeats, check_tokens
from infra.lab.drills.report import step_line
from infra.stack.shop import http_ready
from infra.stack.site import Site

LOST_SECONDS = 2.0
FIRST_WRITE_SECONDS = 30.0
READ_GAP_SECONDS = 5.0
STAND_DOWN_SECONDS = 60.0
WARM = (6.0, 12.0)  # seconds of load before the blow
NOTICED = (0.3, 2.5)  # until the operator types the command
AFTER_SECONDS = 8.0
WORKERS = ("order-worker", "inventory-worker")


@dataclass
class LossFigures:
    """An unplanned failover as it was seen from outside. `asked`: when the command was typed; `lost` is what the
    old site's disk says did not cross, `again` the responses to repeats."""

    damage: Damage
    asked: float
    done: Failover
    told: list[Acknowledgement] = field(default_factory=list)
    again: list[Acknowledgement] = field(default_factory=list)
    lost: Report | None = None


def _lose(course: Course, kind: Kind | None) -> LossFigures:
    active, passive = course.sides.active, course.sides.other
    chosen = course.chance.choice(list(Kind)) if kind is None else kind
    course.sleep(WARM)
    course.show(f"{active.name}: {chosen}")
    damage = strike(course.pair, active, chosen, course.chance)
    course.sleep(NOTICED)
    course.show(f"failover to {passive.name}")
    # Clients are sent to the other site when the command begins.
    course.load.switch(passive.name)
    asked = time.time()
    said = course.pair.run("failover", "--unplanned", "--to", passive.name, "--json")
    time.sleep(AFTER_SECONDS)
    return LossFigures(damage, asked, msgspec.json.decode(said, type=Failover))


def _reads_go_on(course: Course, loss: LossFigures) -> None:
    report, active = course.report, course.sides.active
    loss.told = list(course.load.told)
    report.story += [
        f"{active.name} was active in epoch {course.sides.epoch}; {len(loss.told)} commands were answered.",
        f"{active.name} was {loss.damage.kind}: {', '.join(loss.damage.order)}.",
        f"{loss.asked - loss.damage.at:.1f} s later it was typed: `daybook failover --unplanned`.",
        *map(step_line, loss.done.steps),
    ]
    report.at_most("longest time without reads at the passive site", course.reads.gap(), READ_GAP_SECONDS)
    report.figures["reads served"] = course.reads.served


def _writes_go_on(course: Course, loss: LossFigures) -> None:
    """From the command to the first new acknowledgement; and how long clients had none at all."""
    report = course.report
    new = [each.at for each in loss.told if each.epoch > course.sides.epoch]
    if not new:
        raise DrillFailed(f"{course.sides.other.name} has acknowledged nothing since the failover")
    report.at_most(
        "from the command to the first acknowledged write", min(new) - loss.asked, FIRST_WRITE_SECONDS
    )
    gap = longest_gap((each.at for each in loss.told), loss.damage.at)[0]
    report.figures["seconds without acknowledged writes"] = gap
    report.story.append(f"No write was acknowledged for {gap:.1f} s, the operator's hesitation included.")


def await_passive(pair: Pair, site: Site, epoch: int) -> None:
    """Wait until a site that has returned has stood down and its workers stand by. Raises DrillFailed."""

    def roles() -> dict[str, object]:
        _, passive, seen = pair.roles()
        workers = all(http_ready(site.settings.url(name)) for name in WORKERS)
        return {"passive": passive.name, "epoch": seen, "workers ready": workers}

    wait_until(
        roles,
        f"{site.name} is demoted",
        STAND_DOWN_SECONDS,
        enough=lambda seen: seen == {"passive": site.name, "epoch": epoch, "workers ready": True},
        later=(DrillFailed,),
        error=DrillFailed,
    )


def _losses_are_listed(course: Course, loss: LossFigures) -> None:
    """Recovery point, and the list."""
    report, sides, damage, file = course.report, course.sides, loss.damage, course.run.folder / "lost.json"
    undo(course.pair, damage)
    if damage.kind is not Kind.DEAD:
        course.show(f"{sides.active.name} returns")
        await_passive(course.pair, sides.active, sides.epoch + 1)
    course.show("failover report")
    course.pair.run("failover", "report", "--out", str(file))
    lost = loss.lost = load_report(file)
    found = missing(sides.other.bootstrap, loss.told, sides.epoch + 1, lost, course.load.sent.keys())
    last = max((each.at for each in loss.told if each.site == sides.active.name), default=damage.at)
    end = min(last, damage.at) if damage.kind is Kind.CUT else last
    window = max((end - each.at for each in found.commands), default=0.0)
    report.at_most("acknowledged writes lost, seconds before the last one", max(0.0, window), LOST_SECONDS)
    report.figures["acknowledged commands lost"] = len(found.commands)
    report.figures["events lost"] = sum(len(each.events) for each in lost.losses)
    report.figures["partially mirrored transactions"] = len(lost.torn_transactions)
    report.nothing("acknowledged, lost and not in the report", list(found.unlisted))
    report.nothing("in the report, yet not lost", list(found.unexplained))
    report.lost = [described(each) for each in lost.acknowledged if each.events]


def _repeats_and_tokens_hold(course: Course, loss: LossFigures) -> None:
    new, epoch, lost = course.sides.other, course.sides.epoch + 1, loss.lost
    assert lost is not None
    course.show("repeats of what was acknowledged before")
    gone = {each.command_id for each in lost.losses}
    loss.again = check_repeats(course.pair, course.report, loss.told, course.load.sent, gone, new.name, epoch)
    course.pair.run("failover", "reconcile", "--reissue-all")
    course.show("coming to rest")
    course.pair.await_rest(new)
    check_tokens(course.pair, course.report, loss.told, lost, new.name, epoch)


def _log_is_sound(course: Course, loss: LossFigures) -> None:
    new = course.sides.other
    judge(course.report, new.bootstrap, [*loss.told, *loss.again], loss.lost, new.database_url)


def unplanned(kind: Kind | None = None) -> Drill[LossFigures]:
    """The drill; `kind` is what happens to the active site, and the seed decides where it is None.

    The pair is left with the other site active.
    """
    return Drill(
        "unplanned",
        "Kill, freeze or disconnect the active site under load, fail over, and account for every write.",
        rig=whole,
        clients=Clients("u"),
        faults=lambda course: _lose(course, kind),
        promises=(
            all_answered,
            _reads_go_on,
            _writes_go_on,
            _losses_are_listed,
            _repeats_and_tokens_hold,
            _log_is_sound,
        ),
    )
