"""The envelope on the wire: what was written once is read as before, and what is written now stays as it is."""

from __future__ import annotations

import pytest

from services.kernel.record.envelope import (
    SYSTEM,
    UNAUTHENTICATED,
    UNKNOWN,
    AuthContext,
    Headers,
    Metadata,
    ReplyAddress,
    read_event_headers,
    read_headers,
    write_headers,
)

EVENT = Metadata(
    id="0195534d-3c00-7000-8000-000000000001",
    type="daybook.order.OrderPlaced",
    subject="536365",
    source="daybook/order",
    recorded_at=1_291_191_960_000_001,
    correlation_id="talk",
    causation_id="cause",
    epoch=3,
    version=2,
    request_hash="00ff",
    transaction="tx/0/1",
)
# Written before records named their principal.
OLD_EVENT: Headers = [
    ("ce_specversion", b"1.0"),
    ("ce_type", b"daybook.order.OrderPlaced"),
    ("ce_source", b"daybook/order"),
    ("content-type", b"application/avro"),
    ("ce_epoch", b"3"),
    ("ce_time", b"2010-12-01T08:26:00.000001Z"),
    ("ce_id", b"0195534d-3c00-7000-8000-000000000001"),
    ("ce_subject", b"536365"),
    ("ce_correlationid", b"talk"),
    ("ce_causationid", b"cause"),
    ("ce_sequence", b"2"),
    ("ce_requesthash", b"00ff"),
    ("ce_transaction", b"tx/0/1"),
]
PRINCIPALS: list[tuple[AuthContext, Headers]] = [
    (AuthContext("user", "3f0c9a52"), [("ce_authtype", b"user"), ("ce_authid", b"3f0c9a52")]),
    (
        AuthContext("service_account", "till", "0d5e"),
        [("ce_authtype", b"service_account"), ("ce_authid", b"till"), ("ce_operatorid", b"0d5e")],
    ),
    (SYSTEM, [("ce_authtype", b"system")]),
    (UNAUTHENTICATED, [("ce_authtype", b"unauthenticated")]),
    (UNKNOWN, [("ce_authtype", b"unknown")]),
]


def test_a_record_that_names_no_principal_is_read_as_before() -> None:
    assert read_headers(OLD_EVENT) == read_event_headers(dict(OLD_EVENT)) == EVENT
    assert EVENT.auth == UNKNOWN


@pytest.mark.parametrize(("auth", "headers"), PRINCIPALS)
def test_the_principal_stands_behind_the_cause(auth: AuthContext, headers: Headers) -> None:
    written = write_headers(EVENT._replace(auth=auth))
    assert written == [*OLD_EVENT[:10], *headers, *OLD_EVENT[10:]]
    assert read_headers(written).auth == auth
    event = read_event_headers(dict(written))
    assert event is not None
    assert event.auth == auth


def test_a_command_names_its_principal_too() -> None:
    command = EVENT._replace(
        version=0,
        transaction="",
        reply_to=ReplyAddress("order.outcomes", 3, "", ""),
        expected_version=7,
        auth=AuthContext("user", "3f0c9a52"),
        former_id="0d3f",
    )
    headers = write_headers(command)
    assert headers == [
        *OLD_EVENT[:10],
        ("ce_authtype", b"user"),
        ("ce_authid", b"3f0c9a52"),
        ("ce_requesthash", b"00ff"),
        ("ce_replyto", b"order.outcomes:3::"),
        ("ce_expectedversion", b"7"),
        ("ce_formerid", b"0d3f"),
    ]
    assert read_headers(headers) == command


@pytest.mark.parametrize(
    "headers",
    [
        [("ce_authtype", b"USER"), ("ce_authid", b"a")],
        [("ce_authtype", b"user"), ("ce_authid", b"a name")],
        [("ce_authtype", b"user"), ("ce_authid", b"a\0b")],
        [("ce_authtype", b"user"), ("ce_authid", b"x" * 65)],
        [("ce_authtype", b"\xff")],
        [("ce_authtype", None)],
        [("ce_authtype", "user")],
        [("ce_authid", b"a")],
    ],
)
def test_what_our_writers_would_not_write_is_unknown(headers: Headers) -> None:
    """It decides nothing, so it makes no record foreign; and no text of a stranger comes into a read model."""
    assert read_headers([*OLD_EVENT, *headers]) == EVENT
    assert read_event_headers(dict([*OLD_EVENT, *headers])) == EVENT
