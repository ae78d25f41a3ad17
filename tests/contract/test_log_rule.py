"""The rule for records of an events topic says what the shared table says."""

import pytest

from services.kernel.log.rule import REASONS, Foreign, Opening, Reading
from services.kernel.record.codec import Undecodable, decode
from tests.contract.log_rule_cases import CASES, PARTITIONS, TOPIC, Case


def readable(value: bytes | None) -> bool:
    try:
        decode(value)
    except Undecodable:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_are_classified_by_the_log_before_them(case: Case) -> None:
    reading = Reading(TOPIC, 0, PARTITIONS, case.journal, readable)
    readings = []
    for record in case.log:
        match reading.take(record.key, record.value, record.headers):
            case Foreign(reason=reason):
                assert reason in REASONS
                readings.append(reason)
            case Opening():
                readings.append("opening")
            case meant:
                readings.append(meant.value.split()[-1])
    assert tuple(readings) == case.readings


def test_every_reason_has_a_case() -> None:
    assert {reading for case in CASES for reading in case.readings} >= set(REASONS)


def test_names_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
