"""Waiting ends with what was seen, or says what was awaited, how long, and what was seen last."""

import time
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from infra.base.errors import NotReady
from infra.base.waiting import TooLate, wait_until
from tests.waiting import wait_until_async

QUICKLY = 0.001


def counting() -> Callable[[], int]:
    numbers = count()
    return lambda: next(numbers)


def counting_async() -> Callable[[], Awaitable[int]]:
    numbers = count()

    async def look() -> int:
        return next(numbers)

    return look


async def test_the_first_result_that_is_enough() -> None:
    assert wait_until(counting(), "a number", 30, every=QUICKLY) == 1
    assert wait_until(counting(), "three", 30, enough=lambda n: n >= 3, every=QUICKLY) == 3
    assert await wait_until_async(counting_async(), "three", 30, enough=lambda n: n >= 3, every=0) == 3


def test_it_looks_once_even_without_time() -> None:
    assert wait_until(lambda: "there", "it", -1) == "there"


async def test_too_late_says_what_how_long_and_what_was_seen_last() -> None:
    began = time.monotonic()
    with pytest.raises(TooLate, match=r"^not within 0 s: the end \(last seen: 'a part'\)$") as late:
        wait_until(lambda: "a part", "the end", 0.05, enough=lambda _: False, every=QUICKLY)
    assert 0.05 <= time.monotonic() - began < 10
    assert (late.value.what, late.value.seconds, late.value.last) == ("the end", 0.05, "a part")
    with pytest.raises(TooLate, match=r"^not within 0 s: number one$"):
        wait_until(lambda: False, lambda: "number one", 0, every=QUICKLY)

    async def never() -> bool:
        return False

    with pytest.raises(NotReady, match=r"^not within 0 s: never$"):
        await wait_until_async(never, "never", 0, error=NotReady)


def test_what_may_come_later_is_the_reason_at_the_end() -> None:
    numbers = counting()

    def refused_at_first() -> int:
        if (number := numbers()) < 3:
            raise ConnectionError(f"attempt {number}")
        return number

    assert wait_until(refused_at_first, "an answer", 30, later=(ConnectionError,), every=QUICKLY) == 3

    def refused() -> int:
        raise ConnectionError("away")

    with pytest.raises(NotReady, match="away") as failed:
        wait_until(refused, "an answer", 0, later=(ConnectionError,), error=NotReady)
    assert isinstance(failed.value.__cause__, ConnectionError)


def test_another_exception_ends_the_waiting_at_once() -> None:
    numbers = counting()

    def dies() -> int:
        numbers()
        raise ValueError("dead")

    with pytest.raises(ValueError, match="dead"):
        wait_until(dies, "an answer", 30, later=(ConnectionError,), every=QUICKLY)
    assert numbers() == 1
