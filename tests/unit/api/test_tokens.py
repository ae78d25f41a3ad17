from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kernel.record.envelope import MalformedToken, Token

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_~-]{0,63}", fullmatch=True)


@given(
    st.sampled_from(["order", "stock"]), IDS, st.integers(0, 2**40), st.just("") | IDS, st.integers(1, 999)
)
def test_a_token_survives_the_wire(kind: str, entity: str, version: int, event_id: str, epoch: int) -> None:
    token = Token(f"{kind}/{entity}", version, event_id, epoch)
    assert Token.decode(token.encode()) == token


@given(st.text(max_size=80))
def test_anything_else_is_refused_as_malformed(text: str) -> None:
    try:
        assert Token.decode(text).encode() == text
    except MalformedToken:
        return


ARABIC = urlsafe_b64encode("order/1@١..1".encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("text", ["", "x", "b3JkZXI", "é", "b3JkZXIvMUAxLi4x=", ARABIC])
def test_malformed(text: str) -> None:
    with pytest.raises(MalformedToken):
        Token.decode(text)
