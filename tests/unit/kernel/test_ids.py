"""Ids, times and partitions follow the standards."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from services.kernel.model.process import derived_id
from services.kernel.record.envelope import format_time, murmur2, parse_time, uuid7


@given(st.uuids(), st.text())
def test_a_derived_id_is_a_uuid5(namespace: uuid.UUID, name: str) -> None:
    assert derived_id(namespace.bytes, name) == str(uuid.uuid5(namespace, name))


def test_a_minted_id_is_a_uuid7_of_now() -> None:
    before = datetime.now(UTC).timestamp() * 1000
    minted = [uuid.UUID(uuid7()) for _ in range(1000)]
    after = datetime.now(UTC).timestamp() * 1000
    assert {(new_id.version, new_id.variant) for new_id in minted} == {(7, uuid.RFC_4122)}
    assert len(set(minted)) == len(minted)
    assert all(int(before) <= new_id.int >> 80 <= after for new_id in minted)


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000))
def test_times_round_trip(micros: int) -> None:
    assert parse_time(format_time(micros)) == micros


def test_partitions_are_those_of_kafkas_java_client() -> None:
    # org.apache.kafka.common.utils.UtilsTest
    java_hashes = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {data: murmur2(data) for data in java_hashes} == {
        data: number & 0xFFFFFFFF for data, number in java_hashes.items()
    }
