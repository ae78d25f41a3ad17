"""One call, until the shop has said yes or no: without an answer it is repeated under the same key."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import aiohttp
import msgspec

from infra.base.errors import DaybookError
from infra.lab.retail.requests import Api, Call

PATIENCE_SECONDS = 120.0
# While nothing has answered at all: that shop is closed, not busy.
FIRST_PATIENCE_SECONDS = 5.0
REQUEST_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0


class NoResponse(DaybookError):
    """A call had no answer for PATIENCE_SECONDS; the text names it and the last reason."""


class NothingThere(NoResponse):
    """Nothing has answered since the beginning, and no connection is taken."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """What became of a call. `refused` is the stable code of a refusal, empty where it was acknowledged.

    `status`: the entity's; `token`: the write's Consistency-Token; `replayed`: the shop had answered this
    before; `seconds`: from the first attempt to the answer; `repeats`: attempts after the first.
    """

    refused: str
    status: str
    token: str
    replayed: bool
    seconds: float = 0.0
    repeats: int = 0


class Sender:
    """Sends calls to the shop's APIs; `urls` has the address of each."""

    def __init__(
        self, session: aiohttp.ClientSession, urls: Mapping[Api, str], patience: float = PATIENCE_SECONDS
    ) -> None:
        self._session = session
        self._urls = urls
        self._patience = patience
        self._anything_there = False
        # Whether orders are likely new, so that waiting pays; a second load finds them settled.
        self._new_orders = True

    async def send(self, call: Call) -> ApiResponse:
        """The answer of one call; where it `settles` an order, that of the settled one.

        Raises NoResponse; NothingThere where no call ever had a response.
        """
        started, first = time.perf_counter(), None
        for repeats, pause in enumerate(_pauses()):
            try:
                answer = await self._attempt(call)
                # A repeat of our own is no proof that an earlier load had sent it.
                first = answer.replayed if repeats == 0 else bool(first)
                if call.settles and answer.status == "placed":
                    answer = replace(answer, status=await self._settled(call.settles, answer))
                if answer.status != "placed":
                    return replace(
                        answer, replayed=first, repeats=repeats, seconds=time.perf_counter() - started
                    )
                reason = "the order is not settled"
            except aiohttp.ClientConnectorError as error:
                reason = str(error)
                waited = time.perf_counter() - started
                if not self._anything_there and waited > FIRST_PATIENCE_SECONDS:
                    raise NothingThere(reason) from error
            except (aiohttp.ClientError, TimeoutError, _Unavailable) as error:
                reason = str(error) or type(error).__name__
            if time.perf_counter() - started > self._patience:
                raise NoResponse(f"{call.path} {call.key}: {reason}")
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def _attempt(self, call: Call) -> ApiResponse:
        wait = "?wait=settled" if call.settles and self._new_orders else ""
        url = f"{self._urls[call.api]}{call.path}{wait}"
        headers = {
            "Idempotency-Key": call.key,
            "Content-Type": "application/json",
            "X-Correlation-ID": call.correlation,
        }
        async with self._session.post(url, data=call.body, headers=headers) as response:
            self._anything_there = True
            content = await response.read()
            if response.status in (503, 507):
                raise _Unavailable(_member(content, "code") or str(response.status))
            return ApiResponse(
                refused="" if response.ok else _member(content, "code") or str(response.status),
                status=_member(content, "status") if response.ok else "",
                token=response.headers.get("Consistency-Token", ""),
                replayed=response.headers.get("Idempotency-Replayed") == "true",
            )

    async def _settled(self, order_id: str, answer: ApiResponse) -> str:
        """The status of an order that was answered "placed": a replayed answer is as old as its order."""
        self._new_orders = not answer.replayed
        if not answer.replayed:
            return "placed"
        async with self._session.get(f"{self._urls[Api.QUERY]}/orders/{order_id}") as response:
            return _member(await response.read(), "status") if response.ok else "placed"


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


class _Unavailable(Exception):
    """The API says that it cannot tell the outcome, and that a repeat is safe."""


def _member(content: bytes, name: str) -> str:
    """A member of a JSON answer; empty where there is none, as in the answer of a proxy."""
    try:
        return str(msgspec.json.decode(content).get(name, ""))
    except (msgspec.DecodeError, AttributeError):
        return ""
