"""The API sends commands together: it waits for as many as got outcomes together, and never for long."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from services.edge.gateway import SendBuffer, Unsent


def command(name: str) -> Unsent:
    return Unsent(cast(Any, None), name, b"", [])


class Sent(list[list[str]]):
    """What a buffer sent, by entity."""

    def __init__(self, longest: float = 60) -> None:
        super().__init__()
        self.buffer = SendBuffer(self._send, longest)
        self.something = asyncio.Event()

    def _send(self, commands: list[Unsent]) -> None:
        self.append([sent.entity_id for sent in commands])
        self.something.set()


async def test_a_first_command_does_not_wait() -> None:
    sent = Sent()
    sent.buffer.add(command("a"))
    assert sent == [["a"]]


async def test_the_last_expected_command_sends_all() -> None:
    sent = Sent()
    sent.buffer.released = 3
    for name in "abcd":
        sent.buffer.add(command(name))
    assert sent == [["a", "b", "c"]]
    sent.buffer.flush()
    assert sent == [["a", "b", "c"], ["d"]]


async def test_nobody_waits_for_those_who_do_not_come() -> None:
    sent, began = Sent(longest=0.02), time.monotonic()
    sent.buffer.released = 1000
    sent.buffer.add(command("a"))
    assert sent == []
    await asyncio.wait_for(sent.something.wait(), 10)
    assert sent == [["a"]]
    assert time.monotonic() - began >= 0.019


async def test_the_wait_of_a_full_buffer_does_not_end_the_next_one() -> None:
    sent = Sent(longest=60)
    sent.buffer.released = 2
    sent.buffer.add(command("a"))
    sent.buffer.add(command("b"))
    sent.buffer.released = 1_000_000
    sent.buffer.add(command("c"))
    await asyncio.sleep(0.01)  # longer than two commands wait
    assert sent == [["a", "b"]]
