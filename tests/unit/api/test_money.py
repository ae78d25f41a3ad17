from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from services.edge.requests import MICROS, decimal_text, micros

AMOUNTS = st.integers(-(10**15), 10**15)


@given(AMOUNTS)
def test_amounts_survive_a_round_trip_through_text(amount: int) -> None:
    assert micros(decimal_text(amount)) == amount


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=6, allow_nan=False))
def test_micros_are_exact(amount: Decimal) -> None:
    assert Decimal(micros(f"{amount:f}")) == amount * MICROS


def test_a_price_below_a_penny() -> None:
    assert micros("0.001") == 1000
    assert micros("2.55") == 2_550_000
    assert micros("-0.5") == -500_000
    assert decimal_text(1000) == "0.001"
    assert decimal_text(-500_000) == "-0.50"
