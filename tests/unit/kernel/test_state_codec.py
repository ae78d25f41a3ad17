"""Snapshots: equal states have equal bytes in every process, and what earlier code wrote is still read."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import make_dataclass

from contracts.inventory.commands import (
    InventoryCommand,
    IssueStock,
    ReceiveStock,
    ReleaseStock,
    ReserveStock,
    ReturnStock,
)
from contracts.inventory.events import (
    InventoryEvent,
    StockIssued,
    StockReceived,
    StockReleased,
    StockReserved,
    StockReturned,
)
from contracts.order.commands import (
    PlaceOrder,
    RecordMovements,
    RecordReservations,
    ReturnedLine,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import Line, Movement
from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.inventory.service import INVENTORY
from services.kernel.model.decider import fold
from services.kernel.worker.snapshots import StateCodec
from services.order.domain.decider import order_decider
from services.order.domain.state import Order
from services.order.service import ORDER

AT = 1_291_191_960_000_000
SEEDS = range(10)

# Written before `Map` came: entries in the order in which they were put. A state of another shape has another
# format, and its workers discard older snapshots: then write these again.
FORMATS = {"inventory": "96a94b3c3833ebf2", "order": "c8da84000c744a99"}
EARLIER = bytes.fromhex(
    "53746f636b0089a776657273696f6e09a76f6e5f68616e6464a8726573657276656403a8726563656976656464a861646a757374656400"
    "a872657475726e656401a669737375656401ac7265736572766174696f6e7383a13101a13201a2313001a6636c6f73656483a769737375"
    "652f3907a972656c656173652f3308aa72657475726e2e312f3909"
)
HISTORY: list[InventoryEvent] = [
    StockReceived("S", 100, "", AT),
    *(StockReserved("S", order_id, 1, AT) for order_id in ("3", "1", "2", "10", "9")),
    StockIssued("S", "9", 1, AT),
    StockReleased("S", "3", 1, AT, False),
    StockReturned("S", "9", 1, 1, AT),
]


def test_a_snapshot_of_earlier_code_is_restored() -> None:
    codec: StateCodec[Stock] = StateCodec(INVENTORY.states)
    assert {"inventory": codec.format, "order": StateCodec(ORDER.states).format} == FORMATS
    assert codec.decode(EARLIER) == fold(stock_decider, HISTORY)


def test_a_snapshot_is_the_earlier_one_with_its_entries_sorted() -> None:
    codec: StateCodec[Stock] = StateCodec(INVENTORY.states)
    put, by_name = b"\x83\xa11\x01\xa12\x01\xa210\x01", b"\x83\xa11\x01\xa210\x01\xa12\x01"
    assert codec.encode(fold(stock_decider, HISTORY)) == EARLIER.replace(put, by_name)
    assert codec.encode(codec.decode(EARLIER)) == codec.encode(fold(stock_decider, HISTORY))


def test_the_way_to_a_state_does_not_show_in_its_snapshot() -> None:
    codec: StateCodec[Stock] = StateCodec(INVENTORY.states)
    reserved = [StockReserved("S", str(number), 1, AT) for number in range(300)]
    forth, back = fold(stock_decider, reserved), fold(stock_decider, reversed(reserved))
    assert codec.encode(forth) == codec.encode(back)


def snapshots() -> Iterator[bytes]:
    """The snapshots of one sequence of commands: its events come from decisions, so both are compared."""
    codec: StateCodec[Stock] = StateCodec(INVENTORY.states)
    stock = stock_decider.initial
    commands: list[InventoryCommand] = [ReceiveStock("S", 10_000, "", AT)]
    for number in range(400):
        commands.append(ReserveStock("S", f"order-{number}", 1, AT))
        commands += [IssueStock("S", f"order-{number}", AT)] if number % 3 == 0 else []
        commands += [ReleaseStock("S", f"order-{number}", AT, False)] if number % 3 == 1 else []
        commands += [ReturnStock("S", f"order-{number}", 1, 1, AT)] if number % 6 == 0 else []
    for command in commands:
        stock = fold(stock_decider, stock_decider.decide(command, stock), stock)
    yield codec.encode(stock)
    yield codec.encode(stock_decider.forget(stock, 300))
    skus = tuple(f"SKU-{number}" for number in range(20))
    lines = tuple(Line(sku, 2, 1_000_000) for sku in skus)
    order, orders = order_decider.initial, StateCodec[Order](ORDER.states)
    for step in (
        PlaceOrder("o", "United Kingdom", "GBP", AT, lines, ()),
        RecordReservations("o", skus[5:], ()),
        RecordReservations("o", skus[:5], ()),
        ShipOrder("o", AT),
        ReturnLines("o", tuple(ReturnedLine(sku, 1) for sku in skus[3:9]), "", AT),
        RecordMovements("o", tuple(Movement("issue", sku, 0, True, "") for sku in skus[:7])),
    ):
        events = order_decider.decide(step, order)
        order = fold(order_decider, events, order)
        yield repr(events).encode()
        yield orders.encode(order)


def digest() -> str:
    return hashlib.sha256(b"\0".join(snapshots())).hexdigest()


def test_no_fold_and_no_snapshot_depends_on_the_hash_seed() -> None:
    script = "from tests.unit.kernel.test_state_codec import digest; print(digest())"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
        )
        for seed in SEEDS
    ]
    digests = [process.communicate(timeout=120)[0].decode().strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(SEEDS)
    assert set(digests) == {digest()}


def test_a_format_is_named_by_the_shape_of_the_states_alone() -> None:
    def state(docstring: str, *fields: tuple[str, type]) -> type:
        return make_dataclass("State", fields, namespace={"__doc__": docstring})

    first, reworded = state("One text.", ("description", str)), state("Another text.", ("description", str))
    other = state("One text.", ("description", int))
    assert StateCodec([first]).format == StateCodec([reworded]).format != StateCodec([other]).format
