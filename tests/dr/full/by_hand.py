"""What an operator can do to a failover: kill the command, give it up, force it, decide loss by loss."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.dr.reconcile import load as load_report
from infra.dr.reconcile import standings
from infra.dr.steps import Show
from infra.lab.drills.following import Following
from infra.lab.drills.judging import judge, missing, not_logged
from infra.lab.drills.load import Load
from infra.lab.drills.pair import DrillFailed, Pair
from infra.lab.drills.planned import check_equal
from infra.lab.drills.report import DrillReport
from infra.lab.drills.shopping import Shopping
from infra.lab.drills.unplanned import await_passive
from infra.log.asking import ControlReader
from infra.stack.site import Site
from services.kernel.log.control import Control
from services.kernel.record.envelope import format_time, now_micros
from tests.integration.sites.rig import eventually

SEEN_SECONDS = 60.0


def interrupted(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """`failover --planned` is killed while requests are held, given up; then killed past the last turning."""
    report = DrillReport("interrupted", seed, format_time(now_micros()))
    active, passive, epoch = pair.roles()
    pair.await_mirrored(active, passive)
    load = Load(pair.urls(), active.name, Shopping(seed, f"i{seed}-{epoch}"), folder / "told.jsonl")
    with load:
        time.sleep(3)
        show("killed while requests are held")
        _kill_when(pair, active, lambda control: control.held == "quiesced")
        pair.run("failover", "--abort")
        before = len(load.told)
        eventually(lambda: len(load.told) > before + 20, SEEN_SECONDS)
        show("killed when the old site has stood down")
        _kill_when(pair, active, lambda control: control.role.role == "passive")
        with pytest.raises(DrillFailed, match="there is only the way on"):
            pair.run("failover", "--abort")
        with Following(load, passive, epoch):
            pair.run("failover", "--planned")
        time.sleep(5)
        unanswered = load.finish()
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    report.nothing("acknowledged writes lost", not_logged(passive.bootstrap, load.told))
    pair.await_rest(passive)
    judge(report, passive.bootstrap, load.told, database_url=passive.database_url)
    pair.await_mirrored(passive, active)
    check_equal(report, pair)
    return report


def forced(pair: Pair, seed: int, folder: Path, show: Show) -> DrillReport:
    """`failover --unplanned --force` though the active site works; each loss is decided at the prompt."""
    report = DrillReport("forced", seed, format_time(now_micros()))
    active, passive, epoch = pair.roles()
    pair.await_mirrored(active, passive)
    load = Load(pair.urls(), active.name, Shopping(seed, f"f{seed}-{epoch}"), folder / "told.jsonl")
    with load:
        time.sleep(3)
        with pytest.raises(DrillFailed, match="To do it all the same: --force"):
            pair.run("failover", "--unplanned")
        show(f"forced to {passive.name}")
        pair.run("failover", "--unplanned", "--force")
        await_passive(pair, active, epoch + 1)
        load.switch(passive.name)
        time.sleep(3)
        unanswered = load.finish()
    report.nothing("commands without an answer at the end", [each.command_id for each in unanswered])
    pair.run("failover", "report", "--out", str(folder / "lost.json"))
    lost = load_report(folder / "lost.json")
    found = missing(passive.bootstrap, load.told, epoch + 1, lost, load.sent)
    report.nothing("acknowledged, lost and not in the report", list(found.unlisted))
    report.nothing("in the report, yet not lost", list(found.unexplained))
    count = sum(entry.state == "open" for entry in standings(passive.bootstrap, lost))
    report.figures["decided at the prompt"] = count
    pair.run("failover", "reconcile", "--interactive", answers="off\n" + "again\n" * (count - 1))
    decided = [entry.state for entry in standings(passive.bootstrap, lost)]
    report.nothing("still open", [state for state in decided if state == "open"])
    if count:
        assert decided.count("written off") == 1
    pair.await_rest(passive)
    judge(report, passive.bootstrap, load.told, lost, passive.database_url)
    return report


def _kill_when(pair: Pair, site: Site, true: Callable[[Control], bool]) -> None:
    """Begin a planned failover and kill -9 it at the moment that `site.control` of `site` says so."""
    command, reader = pair.begin("failover", "--planned"), ControlReader(site.bootstrap)
    try:
        until = time.monotonic() + SEEN_SECONDS
        while not true(reader.read()):
            if command.poll() is not None or time.monotonic() > until:
                raise DrillFailed(f"the command was over before: {command.returncode}")
    finally:
        command.kill()
        command.wait()
        reader.close()
