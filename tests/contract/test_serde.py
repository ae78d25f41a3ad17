"""Dataclass to bytes and back; and everything that is not a record of ours."""

from dataclasses import asdict
from io import BytesIO
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from contracts.kernel.records import Watermark
from contracts.lock import load_lock, plain
from contracts.order.events import Line, OrderPlaced
from contracts.records import ENCODERS, RECORDS
from services.kernel.record.codec import FRAME, Undecodable, decode, encode
from tests.contract.golden import FOLDER

PLACED = OrderPlaced(
    order_id="536365",
    country="United Kingdom",
    currency="GBP",
    occurred_at=1_291_191_960_000_000,
    lines=(Line("85123A", 6, 2_550_000), Line("85123A", 1, 0)),
    gross=15_300_000,
)
VALUE = encode("order.events", PLACED)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of one field's type; ints fit Avro's narrow `int`."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.lists(of_type(get_args(hint)[0]), max_size=4).map(tuple)
    if type(None) in get_args(hint):
        return st.none() | of_type(get_args(hint)[0])
    if hasattr(hint, "TYPE"):
        return records(hint)
    plain = {str: st.text(), int: st.integers(-(2**31), 2**31 - 1), bool: st.booleans(), bytes: st.binary()}
    return plain[hint]


def records(record_type: type) -> st.SearchStrategy[Any]:
    hints = {name: hint for name, hint in get_type_hints(record_type).items() if name != "TYPE"}
    return st.builds(record_type, **{name: of_type(hint) for name, hint in hints.items()})


@given(st.sampled_from(list(RECORDS.values())).flatmap(records))
def test_records_survive_a_round_trip(record: Any) -> None:
    topic = next(entry.topic for entry in load_lock().entries if entry.type == record.TYPE)
    read = decode(encode(topic, record))
    assert type(read) is type(record)
    assert read == record
    assert hash(read) == hash(record)


@given(st.sampled_from(list(RECORDS.values())).flatmap(records))
def test_the_generated_encoders_write_what_a_general_writer_writes(record: Any) -> None:
    lock, out = load_lock(), BytesIO()
    schema_id = lock.ids(record.TYPE)[-1]
    schemaless_writer(out, parse_schema(plain(lock.schema(schema_id))), asdict(record))
    topic = next(entry.topic for entry in lock.entries if entry.id == schema_id)
    assert encode(topic, record) == FRAME.pack(0, schema_id) + out.getvalue()


def test_every_record_of_a_topic_has_an_encoder() -> None:
    assert set(ENCODERS) == set(RECORDS.values())


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_has_64_bits(number: int) -> None:
    assert decode(encode("order.state", Watermark(number, 0))).events == number


def test_a_decoded_record_is_frozen() -> None:
    with pytest.raises(AttributeError):
        decode(VALUE).gross = 0


def test_a_record_is_not_written_to_a_topic_that_does_not_carry_it() -> None:
    with pytest.raises(KeyError, match=r"inventory\.events-daybook\.order\.OrderPlaced"):
        encode("inventory.events", PLACED)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not framed"),
        (b"", "not framed"),
        (b"\0\0\0\0", "not framed"),
        (b'{"order_id": "536365"}', "not framed"),
        (FRAME.pack(0, 99_999) + VALUE[5:], "99999 is not in the lock"),
        (VALUE + b"\0", "1 bytes too many"),
        (VALUE[:5] + b"\x02\xff" + VALUE[7:], "UnicodeDecodeError"),
    ],
)
def test_bytes_that_are_no_record_are_refused(value: bytes | None, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason):
        decode(value)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_value_cut_short_anywhere_is_refused(version: str) -> None:
    value = (FOLDER / f"daybook.order.OrderPlaced.{version}.avro").read_bytes()
    for end in range(len(value)):
        with pytest.raises(Undecodable):
            decode(value[:end])


@given(schema=st.sampled_from(sorted({entry.id for entry in load_lock().entries})), body=st.binary())
def test_any_bytes_are_a_record_or_undecodable(schema: int, body: bytes) -> None:
    try:
        record = decode(FRAME.pack(0, schema) + body)
    except Undecodable:
        return
    assert load_lock().type_of(schema) == record.TYPE
