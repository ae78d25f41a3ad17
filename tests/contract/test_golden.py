"""Golden records: values written once are read the same for ever."""

import json

import pytest

from contracts.lock import load_lock
from services.kernel.record.codec import decode, encode
from tests.contract.golden import FOLDER, as_json, names, write_missing


@pytest.mark.parametrize("name", names())
def test_a_golden_value_is_read_as_its_newest_version(name: str) -> None:
    record = decode((FOLDER / f"{name}.avro").read_bytes())
    assert as_json(record) == (FOLDER / f"{name}.json").read_text("utf-8")


@pytest.mark.parametrize("name", names())
def test_a_golden_value_of_the_newest_version_is_written_byte_for_byte(name: str) -> None:
    lock, schema_id = load_lock(), names()[name]
    value = (FOLDER / f"{name}.avro").read_bytes()
    record = decode(value)
    newest = lock.ids(record.TYPE)[-1]
    topic = next(entry.topic for entry in lock.entries if entry.id == newest)
    assert (encode(topic, record) == value) is (schema_id == newest)


def test_every_locked_schema_has_a_golden_pair_and_no_pair_lost_its_schema() -> None:
    assert write_missing() == []
    assert {path.stem for path in FOLDER.iterdir()} == set(names())


def test_an_order_of_version_1_is_read_with_its_gross() -> None:
    early = json.loads((FOLDER / "daybook.order.OrderPlaced.v1.json").read_text("utf-8"))
    assert early["gross"] == sum(line["quantity"] * line["unit_price"] for line in early["lines"]) > 0
    assert early["charges"] == []
    assert early["settle_by"] is None
