"""The loss of the active site under load: what is promised of `daybook failover --unplanned`, measured."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from infra.base.waiting import wait_until
from infra.dr.losses import Report
from infra.dr.reconcile import load as load_report
from infra.dr.steps import Show
from infra.dr.switchover import Failover
from infra.lab.drills.acknowledged import Acknowledgement, longest_gap
from infra.lab.drills.damage import Damage, Kind, strike, undo
from infra.lab.drills.judging import described, judge, missing
from infra.lab.drills.load import Load
from infra.lab.drills.pair import DrillFailed, Pair
from infra.lab.drills.probe import ReadProbe
from infra.lab.drills.repeats import check_repeats, check_tokens
from infra.lab.drills.report import DrillReport, step_line
from infra.lab.drills.shopping import Shopping
from infra.lab.retail.requests import Api
from infra.stack.shop import http_ready
from infra.stack.site import Site
from services.kernel.record.envelope import format_time, now_micros

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
    """The course of one unplanned failover, as it was seen from outside."""

    active: Site
    passive: Site
    epoch: int
    load: Load
    damage: Damage | None = None
    asked: float = 0.0  # when the command was typed
    done: Failover | None = None
    told: list[Acknowledgement] = field(default_factory=list)


def unplanned(pair: Pair, seed: int, folder: Path, show: Show, kind: Kind | None = None) -> DrillReport:
    """Hold the drill; the pair is left with the other site active. Raises DrillFailed.

    `kind`: what happens to the active site; the seed decides where it is None.
    """
    chance, report = Random(f"unplanned {seed}"), DrillReport("unplanned", seed, format_time(now_micros()))
    active, passive, epoch = pair.roles()
    pair.await_mirrored(active, passive)
    chosen = chance.choice(list(Kind)) if kind is None else kind
    shopping = Shopping(seed, f"u{seed}-{epoch}")
    loss = LossFigures(
        active, passive, epoch, Load(pair.urls(), active.name, shopping, folder / "told.jsonl")
    )
    with ReadProbe(pair.urls()[passive.name][Api.QUERY]) as reads, loss.load:
        show("clients at work")
        time.sleep(chance.uniform(*WARM))
        show(f"{active.name}: {chosen}")
        loss.damage = strike(pair, active, chosen, chance)
        time.sleep(chance.uniform(*NOTICED))
        _fail_over(pair, loss, show)
        time.sleep(AFTER_SECONDS)
        unanswered = loss.load.finish()
    loss.told = list(loss.load.told)
    _tell(report, loss)
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    report.at_most("longest time without reads at the passive site", reads.gap(), READ_GAP_SECONDS)
    report.figures["reads served"] = reads.served
    _writes(report, loss)
    lost = _lost(pair, loss, folder, show)
    _losses(report, loss, lost)
    show("repeats of what was acknowledged before")
    gone = {each.command_id for each in lost.losses}
    told_again = check_repeats(pair, report, loss.told, loss.load.sent, gone, passive.name, epoch + 1)
    pair.run("failover", "reconcile", "--reissue-all")
    show("coming to rest")
    pair.await_rest(passive)
    check_tokens(pair, report, loss.told, lost, passive.name, epoch + 1)
    judge(report, passive.bootstrap, [*loss.told, *told_again], lost, passive.database_url)
    return report


def _fail_over(pair: Pair, loss: LossFigures, show: Show) -> None:
    """The command as it is typed; clients are sent to the other site when it begins."""
    show(f"failover to {loss.passive.name}")
    loss.load.switch(loss.passive.name)
    loss.asked = time.time()
    said = pair.run("failover", "--unplanned", "--to", loss.passive.name, "--json")
    loss.done = msgspec.json.decode(said, type=Failover)


def _tell(report: DrillReport, loss: LossFigures) -> None:
    assert loss.damage is not None and loss.done is not None
    report.story += [
        f"{loss.active.name} was active in epoch {loss.epoch}; {len(loss.told)} commands were answered.",
        f"{loss.active.name} was {loss.damage.kind}: {', '.join(loss.damage.order)}.",
        f"{loss.asked - loss.damage.at:.1f} s later it was typed: `daybook failover --unplanned`.",
        *map(step_line, loss.done.steps),
    ]


def _writes(report: DrillReport, loss: LossFigures) -> None:
    """From the command to the first new acknowledgement; and how long clients had none at all."""
    assert loss.damage is not None
    new = [each.at for each in loss.told if each.epoch > loss.epoch]
    if not new:
        raise DrillFailed(f"{loss.passive.name} has acknowledged nothing since the failover")
    report.at_most(
        "from the command to the first acknowledged write", min(new) - loss.asked, FIRST_WRITE_SECONDS
    )
    gap = longest_gap((each.at for each in loss.told), loss.damage.at)[0]
    report.figures["seconds without acknowledged writes"] = gap
    report.story.append(f"No write was acknowledged for {gap:.1f} s, the operator's hesitation included.")


def _lost(pair: Pair, loss: LossFigures, folder: Path, show: Show) -> Report:
    """What the old site's disk says did not cross."""
    assert loss.damage is not None
    undo(pair, loss.damage)
    if loss.damage.kind is not Kind.DEAD:
        show(f"{loss.active.name} returns")
        await_passive(pair, loss.active, loss.epoch + 1)
    show("failover report")
    pair.run("failover", "report", "--out", str(folder / "lost.json"))
    return load_report(folder / "lost.json")


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


def _losses(report: DrillReport, loss: LossFigures, lost: Report) -> None:
    """Recovery point, and the list."""
    assert loss.damage is not None
    found = missing(loss.passive.bootstrap, loss.told, loss.epoch + 1, lost, loss.load.sent.keys())
    last = max((each.at for each in loss.told if each.site == loss.active.name), default=loss.damage.at)
    end = min(last, loss.damage.at) if loss.damage.kind is Kind.CUT else last
    window = max((end - each.at for each in found.commands), default=0.0)
    report.at_most("acknowledged writes lost, seconds before the last one", max(0.0, window), LOST_SECONDS)
    report.figures["acknowledged commands lost"] = len(found.commands)
    report.figures["events lost"] = sum(len(each.events) for each in lost.losses)
    report.figures["torn transactions"] = len(lost.torn_transactions)
    report.nothing("acknowledged, lost and not in the report", list(found.unlisted))
    report.nothing("in the report, yet not lost", list(found.unexplained))
    report.lost = [described(each) for each in lost.acknowledged if each.events]
