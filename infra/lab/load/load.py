"""Clients at work beside a block of code: a steady rate of commands, until the block stops them."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

import msgspec

from infra.base.background import Background
from infra.lab.load.clients import Client, CommandResponse, NoResponse, Pace, Request, Urls, send_all, session
from infra.lab.load.orders import Shopping

RATE = 60.0
CONCURRENCY = 64
ATTEMPT_SECONDS = 4.0
PAUSE_SECONDS = 0.1
PATIENCE_SECONDS = 90.0


async def repeat(
    sites: Mapping[str, Urls], site: str, requests: Iterable[Request], seconds: float, concurrency: int = 1
) -> list[CommandResponse]:
    """Send commands once more, each for so many seconds; by default one after another, as they followed each other."""
    responses: list[CommandResponse] = []
    async with session(concurrency, ATTEMPT_SECONDS) as http:
        client = Client(http, sites, site, seconds, PAUSE_SECONDS)

        async def send(request: Request) -> None:
            responses.append(await client.send(request))

        await send_all(([request] for request in requests), send, concurrency, Pace(None))
    return responses


class Load(Background):
    """Clients of `site`, in a thread of their own from the beginning of a `with` to `finish`, at the latest to its end.

    `sites` holds every site's APIs, `extra` the headers that each command has beside its own. `sent` are all commands
    by command id; `responses` are in order of arrival, and each is written to `file` as a line of JSON at once.
    """

    def __init__(
        self,
        sites: Mapping[str, Urls],
        site: str,
        shopping: Shopping,
        file: Path,
        rate: float = RATE,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("load")
        self._sites, self._site, self._shopping, self._rate, self._extra = sites, site, shopping, rate, extra
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("wb", buffering=0)
        self._client: Client | None = None
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self.sent: dict[str, Request] = {}
        self.responses: list[CommandResponse] = []

    def __enter__(self) -> Self:
        """Returns when every SKU is in stock. Raises TimeoutError where the shop accepts no deliveries."""
        super().__enter__()
        if not self._opened.wait(PATIENCE_SECONDS) or self._failure:
            self.__exit__()
            raise TimeoutError("the shop does not accept deliveries") from self._failure
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the clients, also where the block has failed."""
        self._end(0.0)

    @property
    def failed(self) -> Counter[str]:
        """Attempts without an outcome, by problem code or by the error's name."""
        return self._client.failed if self._client is not None else Counter()

    def switch(self, site: str) -> None:
        """Send every attempt, repeats included, to this site from now on, and no `extra` headers."""
        self._site = site
        if self._client is not None:
            self._client.site, self._client.extra = site, {}

    def finish(self) -> list[Request]:
        """Send no new commands and wait for those under way. Returns those without an outcome in time."""
        self._end(PATIENCE_SECONDS)
        if self._failure:
            raise self._failure
        settled = {response.command_id for response in self.responses}
        return [request for command_id, request in self.sent.items() if command_id not in settled]

    def _end(self, patience: float) -> None:
        self._stopping.set()
        self._thread.join(patience)
        if self._client is not None:
            self._client.give_up()
        self._thread.join()
        self._file.close()

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # raised by start or finish
            self._failure = error
            self._opened.set()

    async def _run(self) -> None:
        async with session(CONCURRENCY, ATTEMPT_SECONDS) as http:
            self._client = Client(http, self._sites, self._site, float("inf"), PAUSE_SECONDS, self._extra)
            opening = ([request] for request in self._shopping.opening())
            await send_all(opening, self._send, CONCURRENCY, Pace(None))
            self._opened.set()
            await send_all(self._requests(), self._send, CONCURRENCY, Pace(self._rate))

    def _requests(self) -> Iterator[list[Request]]:
        while not self._stopping.is_set():
            yield [self._shopping.next(time.time())]

    async def _send(self, request: Request) -> None:
        assert self._client is not None
        caller = self._sites[self._site].caller
        self.sent[request.command_id(caller.headers())] = request
        try:
            response = await self._client.send(request)
        except NoResponse:
            return
        self._file.write(msgspec.json.encode(response) + b"\n")
        self.responses.append(response)
        if response.accepted:
            self._shopping.follow_up(request, response.at)
