"""Who waits, who is answered, and who has waited too long."""

import asyncio

import pytest

from contracts.kernel.records import Outcome
from services.edge.pending_outcomes import PendingOutcomes, fail
from services.edge.unavailable import LogUnavailable, OutcomeUnknown

AWAITED = ("command-1", "hash")


def outcome(command_id: str = "command-1", request_hash: str = "hash") -> Outcome:
    return Outcome(
        command_id, "PlaceOrder", "order-1", "", "accepted", 1, (), "placed", "", "", request_hash, False
    )


async def test_all_who_wait_for_a_command_get_its_outcome_and_others_do_not() -> None:
    pending = PendingOutcomes(60)
    first, second = pending.add(AWAITED), pending.add(AWAITED)
    other = pending.add(("command-1", "another request"))
    pending.resolve([outcome(), outcome("command-2")])
    assert (await first.outcome, await second.outcome) == (outcome(), outcome())
    assert not other.outcome.done()
    assert len(pending) == 3
    for waiter in (first, second):
        pending.remove(AWAITED, waiter)
    assert len(pending) == 1


async def test_whose_patience_is_over_fails_and_who_came_later_waits_on() -> None:
    pending = PendingOutcomes(0.2)
    late = pending.add(AWAITED)
    await asyncio.sleep(0.2)
    later = pending.add(AWAITED)
    pending.expire()
    with pytest.raises(OutcomeUnknown, match="no outcome within"):
        await late.outcome
    pending.remove(AWAITED, late)
    pending.resolve([outcome()])
    assert await later.outcome == outcome()


async def test_the_first_end_counts() -> None:
    pending = PendingOutcomes(60)
    waiter = pending.add(AWAITED)
    fail(waiter, LogUnavailable("not delivered"))
    pending.resolve([outcome()])
    pending.fail_all("the process is stopping")
    with pytest.raises(LogUnavailable, match="not delivered"):
        await waiter.outcome
    pending.remove(AWAITED, waiter)
    assert len(pending) == 0
