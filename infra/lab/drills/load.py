"""The drills' clients: a bounded rate of commands, each repeated under its key until it is answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import aiohttp
import msgspec

from infra.lab.drills.acknowledged import ACCEPTED, Acknowledgement, AcknowledgementFile
from infra.lab.drills.shopping import Request, Shopping
from infra.lab.retail.requests import Api
from services.kernel.record.tokens import Token

RATE = 60.0
AT_ONCE = 64
ATTEMPT_SECONDS = 4.0
PAUSE_SECONDS = 0.1
PATIENCE_SECONDS = 90.0

Urls = Mapping[Api, str]


class Load:
    """Runs in a thread of its own, from the beginning of a `with` to `finish`, or to its end at the latest.

    `urls` has every site's APIs. `sent` are all commands ever sent, by command id; `told` the answers, in
    order of arrival.
    """

    def __init__(
        self, urls: Mapping[str, Urls], site: str, shopping: Shopping, file: Path, rate: float = RATE
    ) -> None:
        self._urls, self._site, self._shopping, self._rate = urls, site, shopping, rate
        self._file = AcknowledgementFile(file)
        self._stopping = threading.Event()
        self._gave_up = threading.Event()
        self._thread = threading.Thread(target=self._in_thread, name="load", daemon=True)
        self._failure: BaseException | None = None
        self.sent: dict[str, Request] = {}
        self.told: list[Acknowledgement] = []
        self.opened = threading.Event()

    def __enter__(self) -> Self:
        """Return when every SKU is in stock. Raises TimeoutError where the shop takes no orders."""
        self._thread.start()
        if not self.opened.wait(PATIENCE_SECONDS) or self._failure:
            self.__exit__()
            raise TimeoutError("the shop does not take deliveries") from self._failure
        return self

    def __exit__(self, *_: object) -> None:
        """A drill that fails leaves no clients behind."""
        self._stopping.set()
        self._gave_up.set()
        self._thread.join()
        self._file.close()

    def switch(self, site: str) -> None:
        """From now on every attempt, repeats too, goes to this site."""
        self._site = site

    def finish(self) -> list[Request]:
        """No new commands; wait for those under way. Answers those that had no answer in time."""
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        self._gave_up.set()
        self._thread.join()
        self._file.close()
        if self._failure:
            raise self._failure
        answered = {each.command_id for each in self.told}
        return [request for command_id, request in self.sent.items() if command_id not in answered]

    def _in_thread(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # told by start or finish
            self._failure = error
            self.opened.set()

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(*(self._ask(session, each) for each in self._shopping.opening()))
            self.opened.set()
            under_way: set[asyncio.Task[None]] = set()
            due = time.monotonic()
            while not self._stopping.is_set():
                # after an outage the rate is as before: what was not asked meanwhile is not made up for
                due = max(due + 1 / self._rate, time.monotonic() - 1 / self._rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                under_way = {task for task in under_way if not _done(task)}
                if len(under_way) < AT_ONCE:
                    request = self._shopping.next(time.time())
                    under_way.add(asyncio.create_task(self._ask(session, request)))
            await asyncio.gather(*under_way)

    async def _ask(self, session: aiohttp.ClientSession, request: Request) -> None:
        began = time.time()
        self.sent[request.command_id] = request
        while not self._gave_up.is_set():
            site = self._site
            told = await attempt(session, self._urls[site], site, request, began)
            if told is not None:
                self._file.append(told)
                self.told.append(told)
                self._shopping.answered(request, told.accepted, told.at)
                return
            await asyncio.sleep(PAUSE_SECONDS)


async def attempt(
    session: aiohttp.ClientSession, urls: Urls, site: str, request: Request, began: float
) -> Acknowledgement | None:
    """One POST to the APIs of `site`; None where there was no answer, or one that says to come again."""
    headers = {"Idempotency-Key": request.key, "Content-Type": "application/json"}
    try:
        url = urls[request.api] + request.path
        async with session.post(url, data=request.body, headers=headers) as response:
            content = await response.read()
            if response.status in (503, 507):
                return None
            body = msgspec.json.decode(content)
            token = response.headers.get("Consistency-Token", "")
            replayed = response.headers.get("Idempotency-Replayed") == "true"
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    of = Token.decode(token) if token else Token("", body.get("version", 0), "", 0)
    answer = ACCEPTED if response.ok else str(body.get("code", response.status))
    about = request.command_id, request.kind, request.entity, request.key, site
    return Acknowledgement(
        *about, answer, of.version, of.event_id, token, of.epoch, replayed, began, time.time()
    )


def _done(task: asyncio.Task[None]) -> bool:
    """Whether it is over. Raises what it raised."""
    if task.done():
        task.result()
    return task.done()
