"""Every node restarted under load, one after the other, each with another setting: no command fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from infra.dr.steps import Show
from infra.lab.cluster.cluster import BROKERS, CONTROLLER, Cluster
from infra.lab.cluster.moves import elect_preferred
from infra.lab.cluster.replicated import in_force
from infra.lab.cluster.rig import Rig
from infra.lab.drills.acknowledged import ACCEPTED, longest_gap
from infra.lab.drills.cluster.write_probe import WriteProbe
from infra.lab.drills.judging import judge
from infra.lab.drills.load import Load
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from infra.lab.retail.requests import Api
from services.kernel.record.envelope import format_time, now_micros
from services.order.domain.refusals import OrderRefusal

RATE = 20.0
WARM_SECONDS = 5.0
BETWEEN_SECONDS = 3.0
# Read at a start only: it changes with a restart, node by node.
STATIC = ("queued.max.requests", "400")
# Taken while a broker runs.
DYNAMIC = ("log.cleaner.threads", "2")
RULES = tuple(rule.name.lower() for rule in OrderRefusal)


def rolling(rig: Rig, seed: int, folder: Path, show: Show) -> DrillReport:
    """Hold the drill on a cluster that is whole, and leave it whole, its nodes with the new settings."""
    report = DrillReport("cluster rolling", seed, format_time(now_micros()))
    rig.open_shop()
    name = f"rolling-{time.time_ns():x}"
    load = Load(rig.urls, "home", Shopping(seed, name), folder / "acknowledged.jsonl", RATE)
    probe = WriteProbe(rig.urls["home"][Api.INVENTORY], name)
    before = rig.restarts()
    with load, probe:
        time.sleep(WARM_SECONDS)
        began = time.time()
        seconds = _measured(partial(_change_while_running, rig.cluster, report))
        report.figures["changing a setting of three running brokers, s"] = seconds
        for node in (*BROKERS, CONTROLLER):
            show(f"restarting {rig.cluster.nodes[node].name}")
            seconds = _measured(partial(_restart, rig.cluster, node))
            report.story.append(f"{rig.cluster.nodes[node].name}: down, up and in sync in {seconds:.1f} s")
            time.sleep(BETWEEN_SECONDS)
        ended = time.time()
        time.sleep(WARM_SECONDS)
        unanswered = load.finish()
    report.figures["all nodes restarted, s"] = ended - began
    _settled(rig.cluster.admin, report)
    gap = longest_gap((each.at for each in load.told if each.accepted), began, ended)[0]
    report.figures["longest time without an accepted command, s"] = gap
    report.figures["commands answered"] = len(load.told)
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    failed = [each.answer for each in load.told if each.answer not in (ACCEPTED, *RULES)]
    report.nothing("commands refused for another reason than the shop's rules", failed)
    _of_single_attempts(report, probe)
    for process, times in rig.restarts().items():
        if times > before.get(process, 0):
            report.story.append(f"{process} was started again {times - before.get(process, 0)} times")
    show("coming to rest")
    rig.await_rest()
    judge(report, rig.cluster.bootstrap, load.told)
    return report


def _of_single_attempts(report: DrillReport, probe: WriteProbe) -> None:
    """A client that never repeats: what it saw. Its failures are 503 that say so, and figures."""
    failed = probe.failed()
    report.figures["writes of a client that never repeats"] = len(probe.told)
    report.figures["of these answered 503"] = failed.total()
    report.figures["slowest of these, s"] = max(each.at - each.asked for each in probe.told)
    others = [f"{count} times {kind}" for kind, count in failed.items() if not kind.startswith("503 ")]
    report.nothing("answers to single attempts that are neither success nor 503", others)


def _restart(cluster: Cluster, number: int) -> None:
    cluster.stop(number)
    cluster.launch(number, own=dict([STATIC]))
    if number != CONTROLLER:
        cluster.await_members([number])
    cluster.await_in_sync()
    if number != CONTROLLER:
        elect_preferred(cluster.bootstrap)


def _change_while_running(cluster: Cluster, report: DrillReport) -> None:
    admin = cluster.admin
    for broker in BROKERS:
        entry = ConfigEntry(*DYNAMIC, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)
    report.story.append(f"{DYNAMIC[0]}={DYNAMIC[1]} was set on each broker as it ran")


def _settled(admin: AdminClient, report: DrillReport) -> None:
    found = in_force(admin, ConfigResource.Type.BROKER, [str(each) for each in BROKERS])
    for name, value in (STATIC, DYNAMIC):
        values = [settings[name] for settings in found.values()]
        kept = values == [value] * len(BROKERS)
        report.promise(f"{name} on all three", value, ", ".join(values), kept)


def _measured(step: Callable[[], None]) -> float:
    began = time.monotonic()
    step()
    return time.monotonic() - began
