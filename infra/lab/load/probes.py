"""Clients that send one request again and again and never repeat it: what a user sees meanwhile."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import httpx

from infra.base.background import Background
from infra.lab.load.clients import Api, Urls, longest_gap

READ_EVERY_SECONDS, READ_SECONDS = 0.05, 5.0
WRITE_EVERY_SECONDS, WRITE_SECONDS = 0.1, 20.0
SKU = "probe-1"


@dataclass(frozen=True)
class Attempt:
    """One attempt. `status` is 0 where there was no response, and `code` is then the failure's name; else it is the
    code of the problem. Times are in seconds since 1970."""

    status: int
    code: str
    retry_after: str
    sent: float
    at: float

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300


class Probe(Background):
    """Sends the requests of `send` to an API, one every so many seconds, between `with` and its end."""

    def __init__(
        self,
        urls: Urls,
        api: Api,
        send: Callable[[httpx.Client], httpx.Response],
        every: float,
        timeout: float,
    ) -> None:
        super().__init__("probe")
        self._urls, self._api, self._send, self._every, self._timeout = urls, api, send, every, timeout
        self.attempts: list[Attempt] = []

    @property
    def succeeded(self) -> int:
        return sum(attempt.succeeded for attempt in list(self.attempts))

    def between(self, start: float, end: float) -> list[Attempt]:
        """The attempts that began and ended within these times."""
        return [attempt for attempt in list(self.attempts) if start <= attempt.sent and attempt.at <= end]

    def failures(self) -> Counter[str]:
        """Attempts without success, counted by status and code."""
        failed = (attempt for attempt in list(self.attempts) if not attempt.succeeded)
        return Counter(f"{attempt.status or ''} {attempt.code}".strip() for attempt in failed)

    def gap(self, start: float = 0.0, end: float = float("inf")) -> float:
        """The longest time from one success to the next that touches `start` to `end`, in seconds; infinite without
        any."""
        times = [attempt.at for attempt in list(self.attempts) if attempt.succeeded]
        return longest_gap(times, start, end)[0] if len(times) > 1 else float("inf")

    def _work(self) -> None:
        url, caller = self._urls[self._api], self._urls.caller
        with httpx.Client(base_url=url, timeout=self._timeout, trust_env=False, auth=caller) as client:
            while not self._stopping.wait(self._every):
                self.attempts.append(self._attempt(client))

    def _attempt(self, client: httpx.Client) -> Attempt:
        sent = time.time()
        try:
            response = self._send(client)
        except httpx.HTTPError as error:
            return Attempt(0, type(error).__name__, "", sent, time.time())
        code = "" if response.is_success else str(response.json().get("code", ""))
        return Attempt(response.status_code, code, response.headers.get("Retry-After", ""), sent, time.time())


def read_probe(urls: Urls) -> Probe:
    """Reads the newest orders of a site's read model."""
    newest = {"limit": 1}

    def read(client: httpx.Client) -> httpx.Response:
        return client.get("/orders", params=newest)

    return Probe(urls, Api.QUERY, read, READ_EVERY_SECONDS, READ_SECONDS)


def write_probe(urls: Urls, name: str) -> Probe:
    """Receives one unit of a SKU. `name` begins the keys."""
    numbers = count(1)

    def receive(client: httpx.Client) -> httpx.Response:
        key = f"{name}-{next(numbers)}"
        body = {"quantity": 1, "reference": key}
        return client.post(f"/stock/{SKU}/receipts", json=body, headers={"Idempotency-Key": key})

    return Probe(urls, Api.INVENTORY, receive, WRITE_EVERY_SECONDS, WRITE_SECONDS)
