"""After any commands, in any order, refunds are right (I8), and each outgoing command is pending or has an outcome."""

from hypothesis import given
from hypothesis import strategies as st

from contracts.order.commands import (
    CancelOrder,
    ExpireOrder,
    OrderCommand,
    PlaceOrder,
    RecordMovements,
    RecordReservations,
    ReturnedLine,
    ReturnLines,
    ShipOrder,
)
from contracts.order.events import (
    Charge,
    Line,
    Movement,
    MovementsRecorded,
    OrderConfirmed,
    OrderEvent,
    OrderPlaced,
    OrderReturned,
    ReservationsRecorded,
)
from services.kernel.model.decider import Refused, fold
from services.kernel.model.process import OutgoingCommand
from services.kernel.worker.snapshots import StateCodec
from services.order.domain.decider import order_decider
from services.order.domain.state import STATES, Order
from services.order.process import order_process

ORDER = "536365"
skus, times = st.sampled_from(["A", "B", "C"]), st.integers(1, 50)
lines = st.lists(st.builds(Line, skus, st.integers(0, 4), st.integers(0, 9)), max_size=4).map(tuple)
charges = st.lists(st.builds(Charge, st.just("POST"), st.integers(-9, 9)), max_size=2).map(tuple)
returned = st.lists(st.builds(ReturnedLine, skus, st.integers(0, 4)), max_size=3).map(tuple)
some = st.lists(skus, max_size=3).map(tuple)
movement = st.builds(
    Movement,
    st.sampled_from(["release", "issue", "return"]),
    skus,
    st.integers(0, 2),
    st.just(True),
    st.just(""),
)
place = st.builds(
    PlaceOrder, st.just(ORDER), st.just("France"), st.just("EUR"), times, lines, charges, st.none(), times
)
replies = st.one_of(
    st.builds(RecordReservations, st.just(ORDER), some, st.one_of(st.just(()), some)),
    st.just(RecordReservations(ORDER, ("A", "B", "C"), ())),
    st.builds(RecordMovements, st.just(ORDER), st.lists(movement, max_size=4).map(tuple)),
)
commands: st.SearchStrategy[OrderCommand] = st.one_of(
    place,
    replies,
    st.builds(CancelOrder, st.just(ORDER), st.just(""), times),
    st.builds(ExpireOrder, st.just(ORDER), times),
    st.builds(ShipOrder, st.just(ORDER), times),
    st.builds(ReturnLines, st.just(ORDER), returned, st.just(""), times),
)
# half of them begin with a shipped order, which random commands seldom reach
histories = st.lists(commands, max_size=12) | st.tuples(
    place,
    st.just(RecordReservations(ORDER, ("A", "B", "C"), ())),
    st.just(ShipOrder(ORDER, 9)),
    st.lists(commands, max_size=10),
).map(lambda parts: [*parts[:3], *parts[3]])


def run(history: list[OrderCommand]) -> list[OrderEvent]:
    """The events of the accepted commands."""
    state, events = order_decider.initial, list[OrderEvent]()
    for command in history:
        try:
            new = order_decider.decide(command, state)
        except Refused:
            continue
        assert len(new) <= 1
        state = fold(order_decider, new, state)
        events += new
    assert fold(order_decider, events) == state
    return events


@given(histories)
def test_money_and_units_are_conserved(history: list[OrderCommand]) -> None:
    events = run(history)
    for placed in (event for event in events if isinstance(event, OrderPlaced)):
        goods = sum(line.quantity * line.unit_price for line in placed.lines)
        assert placed.gross == goods + sum(charge.amount for charge in placed.charges)
        returns = [event for event in events if isinstance(event, OrderReturned)]
        assert all(event.refund == sum(line.refund for line in event.lines) for event in returns)
        refunded, back = sum(event.refund for event in returns), sum(event.units for event in returns)
        assert 0 <= refunded <= goods
        complete = [event.complete for event in returns]
        assert complete[:-1] == [False] * len(complete[:-1])
        if complete and complete[-1]:
            assert (refunded, back) == (goods, sum(line.quantity for line in placed.lines))


@given(histories, replies)
def test_recording_again_changes_nothing(history: list[OrderCommand], command: OrderCommand) -> None:
    state = fold(order_decider, run(history))
    try:
        after = fold(order_decider, order_decider.decide(command, state), state)
    except Refused:
        return
    assert list(order_decider.decide(command, after)) == []


@given(histories)
def test_pending_commands_are_those_without_an_outcome(history: list[OrderCommand]) -> None:
    state: Order = order_decider.initial
    pending_commands: dict[tuple[str, str, str], OutgoingCommand] = {}
    for event in run(history):
        state = order_decider.evolve(state, event)
        match event:
            case ReservationsRecorded() | OrderConfirmed():
                for sku in event.reserved:
                    del pending_commands["ReserveStock", sku, ""]
            case MovementsRecorded(movements=movements):
                for movement in movements:
                    command_name = f"{movement.step.capitalize()}Stock"
                    del pending_commands[command_name, movement.sku, str(movement.return_number or "")]
            case OrderPlaced() | OrderReturned():
                pass
            case _:  # ended or shipped: outcomes of reservations no longer matter
                pending_commands = {}
        for outgoing in order_process.react(event, state):
            pending_commands[type(outgoing.command).__name__, outgoing.key, outgoing.tag] = outgoing
        assert list(order_process.pending(state)) == list(pending_commands.values())


@given(histories)
def test_a_snapshot_is_the_state(history: list[OrderCommand]) -> None:
    codec, state = StateCodec[Order](STATES), fold(order_decider, run(history))
    assert codec.decode(codec.encode(state)) == state
