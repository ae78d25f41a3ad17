"""The one load generator: HTTP clients of the shop that repeat each command until they receive its outcome.

The loader of the real input, the drills, the bench and the tests all send their commands through it.
"""

import asyncio
import time
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import aiohttp
import msgspec

from infra.base.errors import DaybookError
from infra.identity.caller import Caller
from services.edge.writes import command_id
from services.kernel.record.envelope import Token

ACCEPTED = "accepted"
UNAVAILABLE = (429, 503, 507)  # the outcome is unknown, and a repeat is safe
PATIENCE_SECONDS = 120.0
# While nothing has responded at all: that shop is closed, not busy.
FIRST_PATIENCE_SECONDS = 5.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
CONNECT_SECONDS = 5.0

Work = TypeVar("Work")


class Api(StrEnum):
    """The APIs of the shop."""

    ORDER = "order"
    INVENTORY = "inventory"
    QUERY = "query"


@dataclass(frozen=True)
class Urls:
    """The addresses of a shop's APIs, and how its clients call them."""

    addresses: Mapping[Api, str]
    caller: Caller = field(default_factory=Caller)

    def __getitem__(self, api: Api) -> str:
        return self.addresses[api]


class NoResponse(DaybookError):
    """A command received no outcome in time; the text names the command and the last reason."""


class NothingThere(NoResponse):
    """No API has responded since the beginning, and no connection is accepted."""


@cache
def subject_of(authorization: str) -> str:
    """The subject of the token in such a header, not verified; empty where there is none."""
    payload = authorization.count(".") == 2 and authorization.split(".")[1]
    return str(msgspec.json.decode(urlsafe_b64decode(payload + "=="))["sub"]) if payload else ""


@dataclass(frozen=True, slots=True)
class Request:
    """One command over HTTP: the same bytes under the same Idempotency-Key `key` whenever it is repeated.

    `entity` is the order or SKU. `settles`: wait until the order is settled.
    """

    kind: str
    api: Api
    path: str
    key: str
    entity: str
    body: bytes
    settles: bool = False
    correlation: str = ""

    def command_id(self, headers: Mapping[str, str]) -> str:
        """The id of the command that the request becomes, if it is sent with these headers: its principal's own."""
        return command_id(self.entity, self.key, subject_of(headers.get("Authorization", "")))

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Idempotency-Key": self.key, "Content-Type": "application/json"}
        return headers | {"X-Correlation-ID": self.correlation} if self.correlation else headers


@dataclass(frozen=True, slots=True)
class CommandResponse:
    """The response to one command. `outcome` is `accepted` or the code of a refusal; `site` is the site that responded.

    `event_id` is empty where nothing changed, `epoch` is the token's (0 for refusals). `sent` is the time of the first
    attempt and `at` that of the response, in seconds since 1970. `replayed`: the first attempt received a recorded
    outcome. `status` is the entity's, `repeats` counts the attempts after the first, `body` is the response's, as text.
    """

    command_id: str
    kind: str
    entity: str
    key: str
    site: str
    outcome: str
    version: int
    event_id: str
    token: str
    epoch: int
    replayed: bool
    sent: float
    at: float
    status: str = ""
    repeats: int = 0
    body: str = ""

    @property
    def accepted(self) -> bool:
        return self.outcome == ACCEPTED

    @property
    def seconds(self) -> float:
        return self.at - self.sent


def longest_gap(
    times: Iterable[float], start: float = 0.0, end: float = float("inf")
) -> tuple[float, float, float]:
    """The longest interval without one of `times` that touches `start` to `end`: (seconds, from, to)."""
    gaps = [
        (later - earlier, earlier, later)
        for earlier, later in pairwise(sorted(times))
        if later >= start and earlier <= end
    ]
    return max(gaps, default=(0.0, start, start))


class Client:
    """Sends commands to the APIs of `site`, one of `sites`, which may change at any time, with `extra` headers.

    `patience`: seconds after which a command without an outcome raises NoResponse; at once after `give_up`. `failed`
    counts the attempts without an outcome, by problem code or by the error's name.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        sites: Mapping[str, Urls],
        site: str,
        patience: float = PATIENCE_SECONDS,
        longest_pause: float = LONGEST_PAUSE_SECONDS,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self.site, self.extra = site, extra or {}
        self._session, self._sites = session, sites
        self._patience, self._longest_pause = patience, longest_pause
        self.failed: Counter[str] = Counter()
        self._something_there = False
        # Whether orders are probably new, so that waiting pays; a second load finds them settled.
        self._new_orders = True

    def give_up(self) -> None:
        """End every command that has no outcome yet with NoResponse, at its next attempt."""
        self._patience = 0.0

    async def send(self, request: Request) -> CommandResponse:
        """The response to a command, repeated until there is an outcome; with `settles`, that of the settled order.

        Raises NoResponse, or NothingThere where no command has ever received a response.
        """
        sent, pause, replayed, repeats = time.time(), FIRST_PAUSE_SECONDS, False, 0
        while True:
            try:
                response = await self._attempt(request)
                # A repeat of our own does not prove that an earlier load had sent the command.
                replayed = response.replayed if repeats == 0 else replayed
                if not request.settles or response.status != "placed":
                    return replace(response, replayed=replayed, sent=sent, at=time.time(), repeats=repeats)
                reason = "the order is not settled"
            except aiohttp.ClientConnectorError as error:
                reason = str(error)
                self.failed[type(error).__name__] += 1
                if not self._something_there and time.time() - sent > FIRST_PATIENCE_SECONDS:
                    raise NothingThere(reason) from error
            except (aiohttp.ClientError, OSError, _Unavailable) as error:
                reason = str(error) or type(error).__name__
                self.failed[reason if isinstance(error, _Unavailable) else type(error).__name__] += 1
            if time.time() - sent > self._patience:
                raise NoResponse(f"{request.path} {request.key}: {reason}")
            await asyncio.sleep(pause)
            pause, repeats = min(2 * pause, self._longest_pause), repeats + 1

    async def _attempt(self, request: Request) -> CommandResponse:
        site = self.site
        wait = "?wait=settled" if request.settles and self._new_orders else ""
        url = f"{self._sites[site][request.api]}{request.path}{wait}"
        headers = {**request.headers, **self._sites[site].caller.headers(), **self.extra}
        async with self._session.post(url, data=request.body, headers=headers) as http:
            self._something_there = True
            content = await http.read()
            body = _members(content)
            code = str(body.get("code", "")) or str(http.status)
            if http.status in UNAVAILABLE:
                raise _Unavailable(code)
            encoded = http.headers.get("Consistency-Token", "")
            replayed = http.headers.get("Idempotency-Replayed") == "true"
        status = str(body.get("status", "")) if http.ok else ""
        if request.settles and status == "placed":
            status = await self._settled(request, replayed)
        token = Token.decode(encoded) if encoded else Token("", int(body.get("version", 0)), "", 0)
        return CommandResponse(
            command_id=request.command_id(self._sites[site].caller.headers()),
            kind=request.kind,
            entity=request.entity,
            key=request.key,
            site=site,
            outcome=ACCEPTED if http.ok else code,
            version=token.version,
            event_id=token.event_id,
            token=encoded,
            epoch=token.epoch,
            replayed=replayed,
            sent=0.0,
            at=0.0,
            status=status,
            body=content.decode(errors="replace"),
        )

    async def _settled(self, request: Request, replayed: bool) -> str:
        """The status of an order whose response says "placed": a recorded outcome is as old as its order."""
        self._new_orders = not replayed
        if not replayed:
            return "placed"
        urls = self._sites[self.site]
        url = f"{urls[Api.QUERY]}/orders/{request.entity}"
        async with self._session.get(url, headers=urls.caller.headers()) as http:
            return str(_members(await http.read()).get("status", "")) if http.ok else "placed"


class _Unavailable(Exception):
    """The API cannot tell the outcome, and a repeat is safe."""


def _members(content: bytes) -> dict[str, Any]:
    """The members of a JSON object; none for any other content, such as a proxy's."""
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}
    return body if isinstance(body, dict) else {}


class Pace:
    """Spaces commands evenly, at most `rate` per second; None: without a bound. A pause is not made up for."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = time.monotonic()

    async def wait(self) -> None:
        if self._gap:
            self._next = max(self._next + self._gap, time.monotonic())
            await asyncio.sleep(self._next - time.monotonic())


async def send_all(
    chains: Iterable[Sequence[Work]], send: Callable[[Work], Awaitable[None]], concurrency: int, pace: Pace
) -> None:
    """Send chains of commands, `concurrency` at a time, each one's commands one after another.

    A chain is taken from `chains` when its first command is due. The first error ends all.
    """
    free = asyncio.Semaphore(concurrency)

    async def run(chain: Sequence[Work]) -> None:
        for number, work in enumerate(chain):
            if number:
                await pace.wait()
            await send(work)

    try:
        async with asyncio.TaskGroup() as group:
            remaining = iter(chains)
            while await free.acquire():
                await pace.wait()
                if (chain := next(remaining, None)) is None:
                    return
                group.create_task(run(chain)).add_done_callback(lambda _: free.release())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


@asynccontextmanager
async def session(connections: int, seconds: float) -> AsyncIterator[aiohttp.ClientSession]:
    """Connections to the shop; an attempt may take so many seconds."""
    timeout = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, CONNECT_SECONDS))
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as opened:
        yield opened
