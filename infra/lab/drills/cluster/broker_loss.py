"""Lose one broker of three, then two: writes go on, then are refused; reads go on; nothing is lost."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from random import Random

from infra.base.waiting import TooLate, wait_until
from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS
from infra.lab.cluster.rig import Rig
from infra.lab.drills.acknowledged import longest_gap
from infra.lab.drills.cluster.stable import readable_events
from infra.lab.drills.cluster.write_probe import Told, WriteProbe
from infra.lab.drills.judging import judge
from infra.lab.drills.load import Load
from infra.lab.drills.probe import ReadProbe
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from infra.lab.retail.requests import Api
from services.kernel.record.envelope import format_time, now_micros

RATE = 20.0
WARM_SECONDS = (4.0, 8.0)
# A worker that cannot learn what became of its transaction gives up after half a minute, and begins anew.
ONE_LOST_SECONDS = 60.0
TWO_LOST_SECONDS = 30.0
# What was sent while two were still there, or is under way when the second dies, is no refusal yet.
REFUSING_AFTER = 12.0
RECOVERED_SECONDS = 120.0
AFTER_SECONDS = 8.0


def broker_loss(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole."""
    chance = Random(f"broker loss {seed}")
    report = DrillReport("cluster broker-loss", seed, format_time(now_micros()))
    rig.open_shop()
    first, second = chance.sample(BROKERS, 2)
    shopping = Shopping(seed, f"loss-{time.time_ns():x}")
    urls = rig.urls["home"]
    load = Load(rig.urls, "home", shopping, folder / "acknowledged.jsonl", RATE)
    probe = WriteProbe(urls[Api.INVENTORY], f"probe-{time.time_ns():x}")
    with load, probe, ReadProbe(urls[Api.QUERY]) as reads:
        time.sleep(chance.uniform(*WARM_SECONDS))
        show(f"killing broker {first}")
        _one_lost(rig, report, load, first)
        show(f"killing broker {second} too")
        _two_lost(rig, report, load, probe, second)
        show("starting both again")
        _back(rig, report, load, (first, second))
        time.sleep(AFTER_SECONDS)
        unanswered = load.finish()
    report.nothing("reads of the query API refused, whatever was lost", reads.refused)
    report.figures["reads served"] = reads.served
    report.figures["longest time without a read, s"] = reads.gap()
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    report.figures["commands answered"] = len(load.told)
    for name, times in rig.restarts().items():
        if times:
            report.story.append(f"{name} was started again {times} times by its supervisor")
    show("coming to rest")
    rig.await_rest()
    judge(report, rig.cluster.bootstrap, load.told)
    return report


def _one_lost(rig: Rig, report: DrillReport, load: Load, broker: int) -> None:
    led = rig.cluster.layout().leaders()[broker]
    killed = time.time()
    rig.cluster.kill(broker)
    time.sleep(ONE_LOST_SECONDS)
    accepted = [each.at for each in load.told if each.accepted]
    gap, _, resumed = longest_gap(accepted, start=killed)
    after = sum(at > resumed for at in accepted)
    report.figures["one lost: longest time without an accepted command, s"] = gap
    report.figures["one lost: first accepted after that, s after the kill"] = resumed - killed
    report.promise(
        "one broker lost", "writes go on", f"{after} accepted after a gap of {gap:.1f} s", after > 0
    )
    report.story.append(f"broker {broker}, which led {led} partitions, was killed; writes rested {gap:.1f} s")


def _two_lost(rig: Rig, report: DrillReport, load: Load, probe: WriteProbe, broker: int) -> None:
    killed = time.time()
    rig.cluster.kill(broker)
    time.sleep(TWO_LOST_SECONDS)
    told = probe.between(killed + REFUSING_AFTER, time.time())
    report.promise(
        "two brokers lost",
        "every write refused with 503, a code and Retry-After",
        f"{len(told)} answers: {_kinds(told)}",
        bool(told) and all(each.status == 503 and each.code and each.retry_after for each in told),
    )
    slowest = max((each.at - each.asked for each in told), default=0.0)
    report.figures["two lost: longest time to a refusal, s"] = slowest
    began = time.time()
    readable, silent = readable_events(rig.cluster.bootstrap)
    report.promise(
        "two brokers lost: both logs read from the beginning, committed records only",
        "reads go on",
        f"{len(readable):,} events, {', '.join(silent) or 'no partition'} without an end",
        bool(readable) and not silent,
    )
    told_before = {each.event_id for each in list(load.told) if each.event_id and each.at < killed}
    report.figures["two lost: events acknowledged before"] = len(told_before)
    report.figures["two lost: of these not readable until a broker is back"] = len(told_before - readable)
    report.figures["two lost: reading the log, s"] = time.time() - began
    report.story.append(f"broker {broker} was killed too; refusals took up to {slowest:.1f} s")


def _back(rig: Rig, report: DrillReport, load: Load, brokers: tuple[int, int]) -> None:
    began = time.time()
    for broker in brokers:
        rig.cluster.launch(broker)
    rig.cluster.await_in_sync()
    in_sync = time.time() - began
    with suppress(TooLate):
        wait_until(
            lambda: any(each.accepted and each.at > began for each in list(load.told)),
            "a command is accepted again",
            RECOVERED_SECONDS,
        )
    answered = [each.at for each in load.told if each.accepted and each.at > began]
    first = min(answered, default=float("inf")) - began
    report.promise("both back", "writes go on by themselves", f"after {first:.1f} s", bool(answered))
    report.figures["both back: all replicas in sync, s"] = in_sync
    report.figures["both back: first accepted command, s"] = first
    report.story.append(f"both were started: first write {first:.1f} s, all in sync {in_sync:.1f} s after")


def _kinds(told: list[Told]) -> str:
    return ", ".join(sorted({f"{each.status} {each.code}".strip() for each in told})) or "none"
