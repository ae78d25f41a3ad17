from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from services.edge.problems import IN_WORDS, Problem, invalid_request
from services.inventory.api import AdjustmentRequest
from services.kernel.record.envelope import format_time
from services.order.api import CancellationRequest, OrderRequest

NOW = 1_800_000_000_000_000
GOOD: dict[str, Any] = {
    "country": "United Kingdom",
    "currency": "GBP",
    "lines": [{"sku": "85123A", "quantity": 6, "unit_price": "2.55"}] * 3,
}
DISCOUNTS = [{"code": "SALE", "amount": "-999999999"}] * 500


def parse(body: bytes) -> OrderRequest:
    try:
        return OrderRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid_request(
            [{**entry, "loc": ("body", *entry["loc"])} for entry in error.errors()]
        ) from error


def refused(**changes: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        parse(msgspec.json.encode({**GOOD, **changes})).command("1", NOW, 60)
    assert caught.value.status == 422
    return caught.value


def line(**changes: Any) -> list[dict[str, Any]]:
    return [*GOOD["lines"][:2], {**GOOD["lines"][2], **changes}]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"lines": line(quantity=0)}, "lines[2].quantity"),
        ({"lines": line(quantity=1_000_001)}, "lines[2].quantity"),
        ({"lines": line(quantity=1.5)}, "lines[2].quantity"),
        ({"lines": line(quantity="1")}, "lines[2].quantity"),
        ({"lines": line(quantity=True)}, "lines[2].quantity"),
        ({"lines": line(unit_price=2.55)}, "lines[2].unit_price"),
        ({"lines": line(unit_price="-1")}, "lines[2].unit_price"),
        ({"lines": line(unit_price="2.5500001")}, "lines[2].unit_price"),
        ({"lines": line(unit_price="2,55")}, "lines[2].unit_price"),
        ({"lines": line(unit_price="1e3")}, "lines[2].unit_price"),
        ({"lines": line(unit_price="1\n")}, "lines[2].unit_price"),
        ({"lines": line(unit_price="٣")}, "lines[2].unit_price"),
        ({"lines": line(unit_price="２.55")}, "lines[2].unit_price"),
        ({"lines": line(quantity="٣")}, "lines[2].quantity"),
        ({"lines": line(sku="٣")}, "lines[2].sku"),
        ({"charges": [{"code": "POST", "amount": "-٣"}]}, "charges[0].amount"),
        ({"occurred_at": "٢٠١٠-١٢-٠١T08:26:00Z"}, "occurred_at"),
        ({"occurred_at": "2010-12-01T08:26:00.١Z"}, "occurred_at"),
        ({"lines": line(sku="")}, "lines[2].sku"),
        ({"lines": line(sku="x" * 65)}, "lines[2].sku"),
        ({"lines": line(sku="a/b")}, "lines[2].sku"),
        ({"lines": line(colour="red")}, "lines[2].colour"),
        ({"lines": []}, "lines"),
        ({"lines": GOOD["lines"] * 334}, "lines"),
        ({"lines": line(quantity=1_000_000, unit_price="999999999")}, "lines"),
        ({"lines": line(quantity=1_000_000, unit_price="1000000"), "charges": DISCOUNTS}, "lines"),
        ({"charges": DISCOUNTS + [{"code": "POST", "amount": "999999999"}] * 500}, "lines"),
        ({"discount": 1}, "discount"),
        ({"currency": "gbp"}, "currency"),
        ({"country": ""}, "country"),
        ({"country": "a\x00b"}, "country"),
        ({"order_id": "a b"}, "order_id"),
        ({"charges": [{"code": "POST", "amount": 18}]}, "charges[0].amount"),
        ({"occurred_at": "2010-12-01T08:26:00"}, "occurred_at"),
        ({"occurred_at": "yesterday"}, "occurred_at"),
        ({"occurred_at": "0001-01-01T00:00:00+14:00"}, "occurred_at"),
        ({"occurred_at": format_time(NOW + 6_000_000)}, "occurred_at"),
    ],
)
def test_bad_input_names_its_field(changes: dict[str, Any], field: str) -> None:
    assert refused(**changes).extra["field"] == field


@pytest.mark.parametrize(
    "changes",
    [
        {"lines": line(unit_price="1e3")},
        {"lines": line(sku="a/b")},
        {"currency": "gbp"},
        {"country": "a\x00b"},
        {"charges": [{"code": "POST", "amount": "x"}]},
    ],
)
def test_messages_describe_the_expected_value_without_its_pattern(changes: dict[str, Any]) -> None:
    assert refused(**changes).detail in IN_WORDS.values()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'{"country":"\\ud800"}', b"[" * 100_000, b'{"a":NaN}', b"{} x"]
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse(body)
    assert caught.value.status == 422


@given(st.binary(max_size=200))
def test_hostile_bodies_are_problems(body: bytes) -> None:
    with pytest.raises(Problem):
        parse(body)


def test_an_order_becomes_a_command() -> None:
    body = {**GOOD, "occurred_at": "2010-12-01T09:26:00+01:00", "charges": [{"code": "D", "amount": "-1.50"}]}
    command = parse(msgspec.json.encode(body)).command("536365", NOW, 60)
    assert (command.order_id, command.customer_id) == ("536365", None)
    assert command.occurred_at == 1_291_191_960_000_000
    assert command.settle_by == NOW + 60_000_000
    assert [line.unit_price for line in command.lines] == [2_550_000] * 3
    assert [charge.amount for charge in command.charges] == [-1_500_000]


def test_the_clock_is_the_default() -> None:
    assert CancellationRequest(reason="twice").command("1", NOW).occurred_at == NOW


def test_an_adjustment_of_nothing_is_refused() -> None:
    with pytest.raises(Problem) as caught:
        AdjustmentRequest(quantity=0, reason="none").command("85123A", NOW)
    assert caught.value.extra["field"] == "quantity"
