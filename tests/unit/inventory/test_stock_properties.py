"""Any commands, in any order, keep the stock right (I7), and conversations can be repeated."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from contracts.inventory.commands import (
    AdjustStock,
    InventoryCommand,
    IssueStock,
    ReceiveStock,
    ReleaseStock,
    ReserveStock,
    ReturnStock,
)
from contracts.inventory.events import InventoryEvent, StockIssued, StockReleased, StockReserved
from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.kernel.model.decider import Refused, fold
from services.kernel.model.map import Map, content_of
from services.kernel.worker.snapshots import StateCodec

SKU = "22423"
orders = st.sampled_from(["1", "2", "3"])
units = st.integers(-2, 12)
times = st.integers(0, 3)
commands: st.SearchStrategy[InventoryCommand] = st.one_of(
    st.builds(ReceiveStock, st.just(SKU), units, st.just("delivery"), times),
    st.builds(AdjustStock, st.just(SKU), st.integers(-12, 12), st.just("count"), times),
    st.builds(ReserveStock, st.just(SKU), orders, units, times),
    st.builds(ReleaseStock, st.just(SKU), orders, times),
    st.builds(IssueStock, st.just(SKU), orders, times),
    st.builds(ReturnStock, st.just(SKU), orders, st.integers(1, 2), units, times),
)


def run(history: list[InventoryCommand]) -> list[InventoryEvent]:
    """The events of the accepted commands."""
    state, events = stock_decider.initial, list[InventoryEvent]()
    for command in history:
        try:
            new = stock_decider.decide(command, state)
        except Refused:
            continue
        assert len(new) <= 1
        state = fold(stock_decider, new, state)
        assert_right(state)
        events += new
    assert fold(stock_decider, events) == state
    return events


def assert_right(stock: Stock) -> None:
    assert stock.on_hand == stock.received + stock.adjusted + stock.returned - stock.issued
    reservations = content_of(stock.reservations)
    assert stock.reserved == sum(reservations.values())
    assert all(units > 0 for units in reservations.values())
    assert stock.available >= 0


@given(st.lists(commands, max_size=30))
def test_units_are_conserved_at_every_prefix(history: list[InventoryCommand]) -> None:
    events = run(history)
    assert fold(stock_decider, events).version == len(events)


@given(st.lists(commands, max_size=30))
def test_a_reservation_ends_once_with_its_quantity(history: list[InventoryCommand]) -> None:
    held: dict[str, int] = {}
    ended: set[str] = set()
    for event in run(history):
        if isinstance(event, StockReserved):
            assert event.order_id not in held.keys() | ended
            held[event.order_id] = event.quantity
        elif isinstance(event, StockReleased | StockIssued):
            assert event.order_id not in ended
            assert event.quantity == held.pop(event.order_id, 0)
            ended.add(event.order_id)


@given(st.lists(commands, max_size=25), commands)
def test_repeated_commands_of_an_order_are_accepted_without_effect(
    history: list[InventoryCommand], command: InventoryCommand
) -> None:
    state = fold(stock_decider, run(history))
    if isinstance(command, ReceiveStock | AdjustStock):
        return  # not of an order: the kernel recognises repeats by their ids
    try:
        after = fold(stock_decider, stock_decider.decide(command, state), state)
    except Refused:
        return
    assert list(stock_decider.decide(command, after)) == []


@given(st.lists(commands, max_size=30), st.integers(0, 30))
def test_forgetting_changes_only_closed_steps(history: list[InventoryCommand], version: int) -> None:
    state = fold(stock_decider, run(history))
    left = stock_decider.forget(state, version)
    nothing = Map()
    assert replace(left, closed=nothing) == replace(state, closed=nothing)
    assert content_of(left.closed) == {
        key: at for key, at in content_of(state.closed).items() if at > version
    }


@given(st.lists(commands, max_size=30))
def test_a_snapshot_is_the_state(history: list[InventoryCommand]) -> None:
    codec, state = StateCodec[Stock]((Stock,)), fold(stock_decider, run(history))
    assert codec.decode(codec.encode(state)) == state
