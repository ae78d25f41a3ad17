"""What a write reads from its headers, beside the key and the precondition."""

import pytest

from services.edge.writes import traceparent

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_traceparent_is_carried_on() -> None:
    assert traceparent({b"traceparent": GOOD.encode()}) == GOOD
    assert traceparent({}) == ""


@pytest.mark.parametrize(
    "given",
    [
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        f"00-{'0' * 32}-{'0' * 16}-00",
        GOOD.replace("00-", "ff-", 1),
        GOOD.upper(),
        GOOD + "-more",
        GOOD[:-1],
        GOOD.replace("4", "٤"),
    ],
)
def test_an_invalid_traceparent_is_ignored(given: str) -> None:
    assert traceparent({b"traceparent": given.encode()}) == ""
