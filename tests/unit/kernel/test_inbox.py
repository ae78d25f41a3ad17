"""The records of an inbox: messages packed by partition, read back one by one, executed and parked one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.inventory.commands import ReserveStock
from contracts.inventory.events import StockReceived
from contracts.kernel.records import Header, InboxBatch, Outcome, OutcomeBatch
from contracts.topics import SERVICE_OF
from infra.lab.checker.evidence import sent_in
from services.inventory.service import INVENTORY
from services.kernel.log.control import Phase
from services.kernel.record.codec import (
    LARGEST_BATCH,
    MOST_MESSAGES,
    MessageGroup,
    OutgoingMessage,
    Record,
    Undecodable,
    batch_records,
    decode,
    encode,
    messages_in,
    own_headers,
    received,
    single_records,
)
from services.kernel.record.envelope import (
    SYSTEM,
    UNKNOWN,
    AuthContext,
    Malformed,
    Metadata,
    partition_of,
    read_headers,
    write_headers,
)
from services.kernel.worker.addresses import Routing
from services.kernel.worker.entities import Staged
from services.kernel.worker.execution import Executor
from tests.unit.kernel.executing import OneRecord, empty_partition

INBOX = "inventory.inbox"
SENDER = Metadata("", "", "", "daybook/order", 1_800_000_000_000_000, "", "", 3, transaction="t")
PARTITIONS = dict.fromkeys(SERVICE_OF, 2)


def reservation(number: int, sku: str, units: int = 1) -> OutgoingMessage:
    value = encode(INBOX, ReserveStock(sku, "o", units, 1))
    return OutgoingMessage(f"id-{number}", sku, f"tag {number}", value)


def group(
    partition: int, messages: list[OutgoingMessage], cause: str = "e", auth: AuthContext = UNKNOWN
) -> MessageGroup:
    reply = "order.inbox", "an-order"
    return MessageGroup(
        INBOX, partition, ReserveStock.TYPE, "c", cause, "00-ab-cd-01", *reply, messages, auth
    )


def read(records: list[Record]) -> list[tuple[Any, ...]]:
    """Every message by content: its record's partition, key, body and metadata."""
    return [
        (record.partition(), message.key, decode(message.value), message.metadata)
        for record in map(OneRecord, records)
        for message in received(record)
    ]


groups = st.lists(
    st.builds(
        lambda partition, count, cause, auth: group(
            partition, [reservation(n, f"sku-{n}") for n in range(count)], cause, auth
        ),
        st.integers(0, 2),
        st.integers(1, 40),
        st.sampled_from(["", "an-event"]),
        st.sampled_from([UNKNOWN, SYSTEM, AuthContext("user", "a.b~c-D_1"), AuthContext("user", "b", "op")]),
    ),
    max_size=60,
)


@given(groups)
def test_each_message_is_read_as_if_it_were_a_record_of_its_own(some: list[MessageGroup]) -> None:
    batches, singles = list(batch_records(some, SENDER)), list(single_records(some, SENDER))
    assert len(singles) == sum(len(group.messages) for group in some)
    assert len(batches) <= len(singles)
    by_partition = {
        number: [
            message[1:]
            for group in some
            if group.partition == number
            for message in read(list(single_records([group], SENDER)))
        ]
        for number in (0, 1, 2)
    }
    for number, expected in by_partition.items():
        assert [message[1:] for message in read(batches) if message[0] == number] == expected


@given(groups)
def test_a_record_stays_within_its_bounds(some: list[MessageGroup]) -> None:
    for _, value, key, more in batch_records(some, SENDER):
        batch = decode(value)
        assert isinstance(batch, InboxBatch)
        assert key is None
        assert 1 <= sum(len(group.messages) for group in batch.groups) <= MOST_MESSAGES
        assert read_headers(more["headers"]).type == InboxBatch.TYPE


def test_large_messages_are_divided_by_size() -> None:
    large = [
        OutgoingMessage(f"id-{number}", "sku", "", bytes(LARGEST_BATCH // 2 - 10)) for number in range(5)
    ]
    records = list(batch_records([group(0, [message]) for message in large], SENDER))
    assert [sum(len(group.messages) for group in decode(value).groups) for _, value, *_ in records] == [
        2,
        2,
        1,
    ]


def test_only_an_inbox_contains_batches() -> None:
    ((_, value, _, more),) = batch_records([group(0, [reservation(1, "sku")])], SENDER)
    with pytest.raises(Malformed, match="only an inbox"):
        received(OneRecord(("inventory.commands", value, None, more)))
    with pytest.raises(Undecodable):
        received(OneRecord((INBOX, value[:-3], None, more)))
    another = encode("inventory.events", StockReceived("sku", 1, "delivery", 1))
    with pytest.raises(Malformed):
        received(OneRecord((INBOX, another, None, more)))


def executed(record: OneRecord) -> Staged[Any]:
    partition = empty_partition(INVENTORY)
    staged: Staged[Any] = Staged()
    executor = Executor(INVENTORY, {record.partition(): partition}, PARTITIONS, 3, phase=lambda: "closed")
    executor.execute(record, staged, 1)
    return staged


def skus(partition: int, count: int) -> list[str]:
    return [sku for sku in map(str, range(1000)) if partition_of(sku, 2) == partition][:count]


def test_one_message_of_a_batch_is_parked_and_the_others_are_executed() -> None:
    here, elsewhere = skus(0, 3), skus(1, 1)[0]
    good = [reservation(number, sku) for number, sku in enumerate(here)]
    bad = [OutgoingMessage("cut", here[0], "", good[0].value[:-1]), reservation(9, elsewhere)]
    ((topic, value, key, more),) = batch_records([group(0, [good[0], *bad, *good[1:]])], SENDER)
    staged = executed(OneRecord((topic, value, key, more)))
    assert [position for position, _ in staged.parked] == [f"{INBOX}/0/7/1", f"{INBOX}/0/7/2"]
    outcomes = [outcome for outcomes in staged.replies.values() for outcome in outcomes]
    assert [(outcome.command_id, outcome.kind, outcome.tag) for outcome in outcomes] == [
        ("id-0", "refused", "tag 0"),  # nothing is in stock
        ("cut", "failed", ""),
        ("id-9", "failed", "tag 9"),
        ("id-1", "refused", "tag 1"),
        ("id-2", "refused", "tag 2"),
    ]
    assert list(staged.replies) == [("order.inbox", None, "an-order", UNKNOWN)]
    assert {outcome.epoch for outcome in outcomes} == {3}


def test_a_parked_message_is_a_record_of_its_own() -> None:
    sku = skus(0, 1)[0]
    ((topic, value, key, more),) = batch_records([group(0, [reservation(4, sku)])], SENDER)
    record: Any = OneRecord((topic, value, key, more))
    (message,) = received(record)
    ((_, alone, own_key, single),) = single_records([group(0, [reservation(4, sku)])], SENDER)
    assert (message.key, message.value) == (sku.encode(), alone)
    assert own_key == sku
    assert own_headers(record, message) == single["headers"]


def test_a_batch_that_cannot_be_read_is_parked_whole() -> None:
    ((topic, value, key, more),) = batch_records([group(0, [reservation(1, skus(0, 1)[0])])], SENDER)
    ((position, parked),) = executed(OneRecord((topic, value[:-1], key, more))).parked
    assert position == f"{INBOX}/0/7"
    assert (parked.key, parked.value) == (b"", value[:-1])
    assert Header("ce_type", InboxBatch.TYPE.encode()) in parked.headers


def test_a_message_may_not_be_a_batch() -> None:
    sku = skus(0, 1)[0]
    ((_, inner, _, _),) = batch_records([group(0, [reservation(1, sku)])], SENDER)
    nested = group(0, [OutgoingMessage("nested", sku, "", inner)])
    ((topic, value, key, more),) = batch_records([nested], SENDER)
    assert [position for position, _ in executed(OneRecord((topic, value, key, more))).parked] == [
        f"{INBOX}/0/7/0"
    ]
    lying = write_headers(read_headers(more["headers"])._replace(type=ReserveStock.TYPE, subject=sku))
    single = OneRecord((INBOX, inner, sku, {"headers": lying}))
    assert [position for position, _ in executed(single).parked] == [f"{INBOX}/0/7"]


def test_a_tool_skips_only_the_unreadable_message_of_a_batch() -> None:
    unreadable = OutgoingMessage("id-0", "sku-0", "", b"not framed")
    (record,) = batch_records([group(1, [unreadable, reservation(1, "sku-1")])], SENDER)
    sent = list(sent_in(OneRecord(record)))
    assert [(message.key, message.transaction, message.body.sku) for message in sent] == [
        ("sku-1", "t", "sku-1")
    ]


def test_a_tool_finds_no_message_in_an_unreadable_record() -> None:
    topic, value, _, more = next(iter(batch_records([group(1, [reservation(1, "sku-1")])], SENDER)))
    cut = OneRecord((topic, value[:-3], None, more))
    assert messages_in(cut) == []


@pytest.mark.parametrize(("phase", "epoch"), [("commands", 0), ("inbox", 0), ("closed", 3)])
def test_outcomes_have_epochs_where_every_process_knows_them(phase: Phase, epoch: int) -> None:
    """Before that a process of an earlier version may read them: it gets the version of the schema that it knows."""
    accepted = Outcome("id", "type", "o-1", "tag", "accepted", 1, ("e",), "placed", "", "", "hash", False, 3)
    routing = Routing("order", phase, PARTITIONS, 3)
    batch = decode(routing.encode("order.outcomes", OutcomeBatch((accepted,), 3)))
    (outcome,) = batch.outcomes
    assert (batch.epoch, outcome) == (epoch, replace(accepted, epoch=epoch))


def test_a_worker_of_an_earlier_version_reads_a_batch_of_several_principals() -> None:
    """The principals are in a header that it does not know; the value is what it always was."""
    first, second = AuthContext("user", "a"), AuthContext("user", "b", "operator")
    some = [group(0, [reservation(1, "s")], auth=first), group(0, [reservation(2, "t")], auth=second)]
    ((topic, value, key, more),) = batch_records(some, SENDER)
    ((_, same, _, before),) = batch_records([group._replace(auth=UNKNOWN) for group in some], SENDER)
    assert value == same
    headers = dict(more["headers"])
    assert headers.keys() - dict(before["headers"]).keys() == {"ce_groupauth"}
    assert headers["ce_groupauth"] == b"user:a:,user:b:operator"
    assert headers["ce_authtype"] == b"system"
    assert [message.metadata.auth for message in received(OneRecord((topic, value, key, more)))] == [
        first,
        second,
    ]


def test_a_batch_of_an_earlier_version_names_no_principal() -> None:
    some = [group(0, [reservation(1, "s")], auth=AuthContext("user", "a"))]
    ((topic, value, key, more),) = batch_records(some, SENDER)
    old = [header for header in more["headers"] if "auth" not in header[0]]
    (message,) = received(OneRecord((topic, value, key, {"headers": old})))
    assert message.metadata.auth == UNKNOWN


@pytest.mark.parametrize(
    "text", [b"", b"user:a:", b"user:a:,x", b"user:a\xff:,user:a:", b"U:a:,user:b c:", b":::"]
)
def test_principals_that_no_worker_wrote_are_unknown(text: bytes) -> None:
    some = [group(0, [reservation(number, sku)]) for number, sku in enumerate("st")]
    ((topic, value, key, more),) = batch_records(some, SENDER)
    forged = {"headers": [*more["headers"], ("ce_groupauth", text)]}
    messages = received(OneRecord((topic, value, key, forged)))
    assert UNKNOWN in {message.metadata.auth for message in messages}
    assert {message.metadata.auth for message in messages} <= {UNKNOWN, AuthContext("user", "a")}


def test_who_caused_a_command_caused_its_reply() -> None:
    """Replies to one entity go together only if one principal caused them."""
    customer, warehouse = AuthContext("user", "customer"), AuthContext("user", "warehouse")
    here = skus(0, 3)
    some = [
        group(0, [reservation(number, sku)], auth=auth)
        for number, (sku, auth) in enumerate(zip(here, (customer, warehouse, customer), strict=True))
    ]
    ((topic, value, key, more),) = batch_records(some, SENDER)
    replies = executed(OneRecord((topic, value, key, more))).replies
    assert {
        receiver[3]: [outcome.command_id for outcome in outcomes] for receiver, outcomes in replies.items()
    } == {
        customer: ["id-0", "id-2"],
        warehouse: ["id-1"],
    }
