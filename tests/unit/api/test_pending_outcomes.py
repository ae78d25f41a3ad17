"""Requests that wait for an outcome: each gets it, or fails after its deadline."""

import asyncio

import pytest

from contracts.kernel.records import Outcome
from services.edge.gateway import PendingOutcomes, fail
from services.edge.problems import LogUnavailable, OutcomeUnknown

AWAITED = ("command-1", "hash")


def outcome(command_id: str = "command-1", request_hash: str = "hash") -> Outcome:
    return Outcome(
        command_id, "PlaceOrder", "order-1", "", "accepted", 1, (), "placed", "", "", request_hash, False
    )


async def test_every_request_waiting_for_a_command_gets_its_outcome() -> None:
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


async def test_only_requests_past_their_deadline_fail() -> None:
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


async def test_only_the_first_result_counts() -> None:
    pending = PendingOutcomes(60)
    waiter = pending.add(AWAITED)
    fail(waiter, LogUnavailable("not delivered"))
    pending.resolve([outcome()])
    pending.fail_all("the process is stopping")
    with pytest.raises(LogUnavailable, match="not delivered"):
        await waiter.outcome
    pending.remove(AWAITED, waiter)
    assert len(pending) == 0
