"""A planned switchover under load: nothing is lost, and writes rest for some seconds."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import msgspec

from infra.dr.comparison import compare
from infra.dr.steps import Show
from infra.dr.switchover import Failover
from infra.lab.drills.acknowledged import longest_gap
from infra.lab.drills.digests import settled_differences
from infra.lab.drills.following import Following
from infra.lab.drills.judging import judge, not_logged
from infra.lab.drills.load import Load
from infra.lab.drills.pair import Pair
from infra.lab.drills.probe import ReadProbe
from infra.lab.drills.repeats import check_repeats
from infra.lab.drills.report import DrillReport, step_line
from infra.lab.drills.shopping import Shopping
from infra.lab.retail.requests import Api
from services.kernel.record.envelope import format_time, now_micros

WITHOUT_WRITES_SECONDS = 15.0
READ_GAP_SECONDS = 5.0
WARM = (5.0, 12.0)
AFTER_SECONDS = 8.0


def planned(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill; roles are changed afterwards, and the mirror runs the other way. Raises DrillFailed."""
    chance, report = Random(f"planned {seed}"), DrillReport("planned", seed, format_time(now_micros()))
    active, passive, epoch = pair.roles()
    pair.await_mirrored(active, passive)
    load = Load(pair.urls(), active.name, Shopping(seed, f"p{seed}-{epoch}"), folder / "told.jsonl")
    with ReadProbe(pair.urls()[passive.name][Api.QUERY]) as reads, load:
        show("clients at work")
        time.sleep(chance.uniform(*WARM))
        show(f"switchover to {passive.name}")
        asked = time.time()
        with Following(load, passive, epoch):
            said = pair.run("failover", "--planned", "--to", passive.name, "--json")
        time.sleep(AFTER_SECONDS)
        unanswered = load.finish()
    done = msgspec.json.decode(said, type=Failover)
    report.story += [
        f"{active.name} was active in epoch {epoch}; {len(load.told)} commands were answered in all.",
        f"`daybook failover --planned --to {passive.name}` was typed.",
        *map(step_line, done.steps),
    ]
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    gap = longest_gap((each.at for each in load.told), asked)[0]
    report.at_most("seconds without acknowledged writes", gap, WITHOUT_WRITES_SECONDS)
    report.at_most("longest time without reads at the passive site", reads.gap(), READ_GAP_SECONDS)
    report.figures["reads served"] = reads.served
    lost = not_logged(passive.bootstrap, load.told)
    report.nothing("acknowledged writes lost", lost)
    show("repeats of what was acknowledged before")
    again = check_repeats(pair, report, load.told, load.sent, frozenset(), passive.name, done.epoch)
    show("coming to rest")
    pair.await_rest(passive)
    judge(report, passive.bootstrap, [*load.told, *again], database_url=passive.database_url)
    show("comparing both sites")
    pair.await_mirrored(passive, active)
    check_equal(report, pair)
    return report


def check_equal(report: DrillReport, pair: Pair) -> None:
    """Both logs record by record, both sites' read models key by key; the mirror must be caught up."""
    active, passive, _ = pair.roles()
    logs = compare(active.bootstrap, passive.bootstrap)
    report.nothing(f"partitions that differ, of {logs.records:,} records mirrored", list(logs.different))
    keys, differing = settled_differences(active, passive)
    report.nothing(f"rows of read models that differ, of {keys:,}", differing)
