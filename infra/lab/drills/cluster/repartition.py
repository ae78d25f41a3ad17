"""More partitions under load: clients are told to come again meanwhile, and every key's order is kept."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from contracts.topics import TOPICS
from infra.dr.repartition.shop import repartition_shop
from infra.dr.steps import Show
from infra.lab.checker import read_evidence
from infra.lab.cluster.replicated import replicated
from infra.lab.cluster.rig import Rig
from infra.lab.drills.acknowledged import Acknowledgement, longest_gap
from infra.lab.drills.judging import judge
from infra.lab.drills.load import Load
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from infra.lab.retail.requests import Api
from services.kernel.log.reader import partitions_of
from services.kernel.record.envelope import format_time, now_micros

SERVICE = "order"
RATE = 20.0
WARM_SECONDS = 15.0
AFTER_SECONDS = 10.0
TOKENS = 20


def repartition(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole; the order service has twice the partitions afterwards."""
    report = DrillReport("cluster repartition", seed, format_time(now_micros()))
    rig.open_shop()
    bootstrap, log = rig.cluster.bootstrap, TOPICS[SERVICE].events
    before = len(partitions_of(bootstrap, log))
    load = Load(rig.urls, "home", Shopping(seed, f"move-{time.time_ns():x}"), folder / "acked.jsonl", RATE)
    with load:
        time.sleep(WARM_SECONDS)
        began = time.time()
        earlier = {each.metadata.id: each.key for each in read_evidence(bootstrap, [log])}
        for each in repartition_shop(rig.settings, SERVICE, 2 * before, replicated(), show):
            report.story.append(
                f"{each.topic}: {each.records} records of {each.keys} keys in {each.partitions} partitions"
            )
        moved = time.time()
        rig.open_shop()
        time.sleep(AFTER_SECONDS)
        unanswered = load.finish()
    accepted = [each for each in load.told if each.accepted]
    gap = longest_gap((each.at for each in accepted), began)[0]
    report.figures["topics copied, verified, switched, s"] = moved - began
    report.figures["longest time without an accepted command, s"] = gap
    report.figures["accepted before"] = sum(each.at < began for each in accepted)
    report.figures["accepted after"] = sum(each.at > moved for each in accepted)
    after = len(partitions_of(bootstrap, log))
    used = {each.partition for each in read_evidence(bootstrap, [log])}
    measured = f"{before}, then {after}, of which {len(used)} hold events"
    kept = len(used) == after == 2 * before
    report.promise("partitions of the order service", f"{2 * before}, all in use", measured, kept)
    now = {each.metadata.id: each.key for each in read_evidence(bootstrap, [log])}
    gone = [event_id for event_id, key in earlier.items() if now.get(event_id) != key]
    report.nothing("events of before that are gone, or another's", gone)
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    show("coming to rest")
    rig.await_rest()
    _check_tokens(rig, report, [each for each in accepted if each.at < began])
    judge(report, bootstrap, load.told)
    return report


def _check_tokens(rig: Rig, report: DrillReport, told: list[Acknowledgement]) -> None:
    """Versions did not change: a token of before is still good."""
    asked = [each for each in told if each.event_id and each.kind != "delivery"][-TOKENS:]
    wrong = []
    with httpx.Client(base_url=rig.urls["home"][Api.QUERY], timeout=30, trust_env=False) as client:
        for each in asked:
            answer = client.get(f"/orders/{each.entity}", headers={"Consistency-Token": each.token})
            if answer.status_code != httpx.codes.OK:
                wrong.append(f"{each.entity} version {each.version}: {answer.status_code}")
    report.nothing(f"tokens of {len(asked)} earlier writes, answered wrongly", wrong)
