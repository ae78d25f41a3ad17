"""The checker of the raw log beside foreign records, openings and decisions, on a real broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from infra.lab.checker import Evidence, check, read_evidence
from infra.log.event_log import foreign_records
from services.kernel.log.rule import REASONS
from tests.contract.log_rule_cases import OTHER, TOPIC, event, opening
from tests.foreign_records import EVENTS, judge, planted, write_log
from tests.stack import site_broker

STOPPED = {each.key for each in planted() if each.stops}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with site_broker(tmp_path_factory.mktemp("log")) as address:
        write_log(address, [record for each in planted() for record in each.log])
        yield address


def versions(bootstrap: str) -> dict[str, list[int]]:
    found = defaultdict(list)
    for recorded in read_evidence(bootstrap):
        found[recorded.key].append(recorded.metadata.version)
    return found


def test_foreign_records_are_skipped_and_named(bootstrap: str) -> None:
    foreign = [each for each in planted() if not each.stops]
    found = foreign_records(bootstrap)
    assert [(each.topic, each.partition) for each in found] == [(TOPIC, 0)] * len(foreign)
    assert {each.reason for each in found} == REASONS.keys() - {"no_version", "decided"}
    assert str(found[0]) == f"{TOPIC}/0/1: its headers are not an envelope"
    sound = {each.key: versions(bootstrap)[each.key] for each in foreign}
    assert sound == {key: list(range(1, EVENTS + 1)) for key in sound}


def test_a_forked_stream_is_a_violation_until_somebody_decides(bootstrap: str) -> None:
    broken = check(Evidence(read_evidence(bootstrap)))
    assert {each.where for each in broken if each.invariant == "I3"} == STOPPED
    judge(bootstrap, [each.record for each in planted() if each.stops])
    assert check(Evidence(read_evidence(bootstrap))) == []
    assert versions(bootstrap) == {each.key: list(range(1, EVENTS + 1)) for each in planted()}
    decided = [each for each in foreign_records(bootstrap) if each.reason == "decided"]
    assert len(decided) == len(STOPPED)


def test_an_opening_is_no_event_and_a_judged_copy_counts_once(bootstrap: str) -> None:
    before, name = len(read_evidence(bootstrap)), {"ce_transaction": b"t/0/1"}
    first = event(1, OTHER, epoch=2).with_header("ce_transaction", name["ce_transaction"])
    write_log(bootstrap, [opening(2), first, first])
    assert {each.where for each in check(Evidence(read_evidence(bootstrap)))} == {OTHER, "t"}
    judge(bootstrap, [first], "genuine")
    assert check(Evidence(read_evidence(bootstrap))) == []
    assert len(read_evidence(bootstrap)) == before + 1
    judge(bootstrap, [first], "suspect")
    assert {each.where for each in check(Evidence(read_evidence(bootstrap)))} >= {OTHER}
