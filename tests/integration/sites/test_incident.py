"""Switches and reports in `site.journal` of a real broker."""

from __future__ import annotations

import pytest

from contracts.kernel.records import RecordJudged, SiteSwitch
from infra.dr import incident
from infra.dr.incident import read_history, read_report, record_following, record_step, write_report
from infra.dr.losses import Report
from infra.dr.plan import ends_of
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.control import JOURNAL, read_journal, write_journal

ENDS = {("order.events", 0): 41, ("order.events", 1): -1, ("site.journal", 0): 7}


def test_the_steps_of_a_switch_are_kept_beside_decisions(two_brokers: tuple[str, str]) -> None:
    _, bootstrap = two_brokers
    judged = RecordJudged("order/o-1", 2, "an event", "digest", "genuine", "", 1)
    write_journal(bootstrap, [("order/o-1", judged)])
    begun = record_step(
        bootstrap, SiteSwitch(5, "unplanned", "home", "away", "begun", (), 0), "stopped", ENDS
    )
    deliver(clients.writer(bootstrap), [NewRecord(JOURNAL, "switch/5", b"not ours", 0)], 20)
    record_step(bootstrap, begun, "promoted")
    history = read_history(bootstrap)
    assert [step.step for step in history.steps] == ["stopped", "promoted"]
    assert ends_of(history.steps[-1]) == ENDS
    assert history.incident is not None
    record_following(bootstrap, history.incident, "reported")
    again = read_history(bootstrap).incident
    assert again is not None
    record_following(bootstrap, again, "reported")
    assert [step.step for step in read_history(bootstrap).steps] == ["stopped", "promoted", "reported"]
    # readers of decisions pass over all of it
    assert read_journal(bootstrap).count == 1


def test_a_large_report_comes_back_whole_and_the_last_counts(
    two_brokers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bootstrap = two_brokers
    monkeypatch.setattr(incident, "PART_BYTES", 50)
    first, second = a_report("2026-11-23T10:00:00Z"), a_report("2026-11-23T11:00:00Z")
    assert read_report(bootstrap, 6) is None
    write_report(bootstrap, 6, first)
    write_report(bootstrap, 7, second)
    assert (read_report(bootstrap, 6), read_report(bootstrap, 7)) == (first, second)
    write_report(bootstrap, 6, second)
    assert read_report(bootstrap, 6) == second


def a_report(made_at: str) -> Report:
    continued = {f"order.events/{number}": number * 1000 for number in range(50)}
    return Report("home", "away", made_at, (), (), (), (), continued)
