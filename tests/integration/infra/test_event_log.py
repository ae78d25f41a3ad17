"""The checker of the raw log beside foreign records, openings and decisions, on a real broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from infra.lab.checker.evidence import Evidence, read_evidence
from infra.lab.checker.invariants import check
from infra.log.event_log import foreign_records
from services.kernel.log.rule import REASONS
from tests.contract.log_rule_cases import OTHER, TOPIC, event, opening
from tests.foreign_records import EVENTS, judge, planted, write_log
from tests.stack import site_broker

STOPPED = {item.key for item in planted() if item.stops}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with site_broker(tmp_path_factory.mktemp("log")) as address:
        write_log(address, [record for item in planted() for record in item.log])
        yield address


def versions(bootstrap: str) -> dict[str, list[int]]:
    result = defaultdict(list)
    for recorded in read_evidence(bootstrap):
        result[recorded.key].append(recorded.metadata.version)
    return result


def test_foreign_records_are_skipped_and_named(bootstrap: str) -> None:
    foreign = [item for item in planted() if not item.stops]
    result = foreign_records(bootstrap)
    assert [(item.topic, item.partition) for item in result] == [(TOPIC, 0)] * len(foreign)
    assert {item.reason for item in result} == REASONS.keys() - {"no_version", "decided"}
    assert str(result[0]) == f"{TOPIC}/0/1: its headers are not an envelope"
    sound = {item.key: versions(bootstrap)[item.key] for item in foreign}
    assert sound == {key: list(range(1, EVENTS + 1)) for key in sound}


def test_a_forked_stream_is_a_violation_until_somebody_decides(bootstrap: str) -> None:
    broken = check(Evidence(read_evidence(bootstrap)))
    assert {item.where for item in broken if item.invariant == "I3"} == STOPPED
    judge(bootstrap, [item.record for item in planted() if item.stops])
    assert check(Evidence(read_evidence(bootstrap))) == []
    assert versions(bootstrap) == {item.key: list(range(1, EVENTS + 1)) for item in planted()}
    decided = [item for item in foreign_records(bootstrap) if item.reason == "decided"]
    assert len(decided) == len(STOPPED)


def test_an_opening_is_no_event_and_a_judged_copy_counts_once(bootstrap: str) -> None:
    before, name = len(read_evidence(bootstrap)), {"ce_transaction": b"t/0/1"}
    first = event(1, OTHER, epoch=2).with_header("ce_transaction", name["ce_transaction"])
    write_log(bootstrap, [opening(2), first, first])
    assert {item.where for item in check(Evidence(read_evidence(bootstrap)))} == {OTHER, "t"}
    judge(bootstrap, [first], "genuine")
    assert check(Evidence(read_evidence(bootstrap))) == []
    assert len(read_evidence(bootstrap)) == before + 1
    judge(bootstrap, [first], "suspect")
    assert {item.where for item in check(Evidence(read_evidence(bootstrap)))} >= {OTHER}
