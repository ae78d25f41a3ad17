"""The shop as its clients see it: its addresses, and whether anything is under way."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx

from infra.base.errors import DaybookError
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.lab.load.clients import Api, Urls
from infra.stack.shop import addresses
from infra.stack.tokens import caller_of

POLL_SECONDS = 0.2
CLIENT_SECONDS = 10.0


class NotAtRest(DaybookError):
    """Conversations or read models did not come to an end in time; the text says what is left."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is under way: whether orders wait for stock, and events that read models have not applied.

    `observed` is when the oldest of these lags was observed (RFC 3339, UTC).
    """

    conversations: int
    lag: int
    observed: str

    def __str__(self) -> str:
        waiting = "orders wait for stock" if self.conversations else "no order waits for stock"
        return f"{waiting}, read models are {self.lag} events behind"


def api_urls(settings: StackSettings) -> Urls:
    """The addresses of a site's own APIs."""
    return urls_of(addresses(settings), settings)


def urls_of(addresses: Mapping[str, str], settings: StackSettings) -> Urls:
    """Those of the APIs, of what `./daybook env` prints; `settings` are those of either site."""
    return Urls({api: addresses[f"DAYBOOK_{api.upper()}_URL"] for api in Api}, caller_of(settings))


class Shop:
    """A synchronous client of the query API: a context. Raises httpx.HTTPError where it does not respond."""

    def __init__(self, urls: Urls) -> None:
        self._client = httpx.Client(
            base_url=urls[Api.QUERY], timeout=CLIENT_SECONDS, trust_env=False, auth=urls.caller
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """Any response; with a Consistency-Token among the headers it is at least as new as that write."""
        return self._client.get(path, headers=headers)

    def read(self, path: str, **parameters: str | int) -> Any:
        """The JSON of a successful response. Raises httpx.HTTPStatusError for any other."""
        return self._client.get(path, params=parameters).raise_for_status().json()

    def rest(self) -> Rest:
        """How far the shop is from rest."""
        partitions = [
            partition
            for projection in self.read("/projections")["projections"]
            for partition in projection["partitions"]
        ]
        stuck = self.read("/conversations/stuck", older_than=0, limit=1)["conversations"]
        return Rest(
            conversations=len(stuck),
            lag=sum(partition["lag_events"] or 0 for partition in partitions),
            observed=min((partition["observed_at"] or "" for partition in partitions), default=""),
        )

    def await_rest(self, seconds: float, seen: Callable[[Rest], None] = lambda _: None) -> None:
        """Wait until nothing is under way; `seen` receives every state that was read. Raises NotAtRest.

        Lag is measured from time to time. The first measurement after the last write that shows no lag proves that no
        conversation is missing; the next one, that their ends have arrived everywhere.
        """
        first_observed = self.rest().observed
        calm_at = ""

        def at_rest(rest: Rest) -> bool:
            nonlocal calm_at
            seen(rest)
            if rest.conversations or rest.lag:
                calm_at = ""
            elif rest.observed > first_observed:
                if calm_at and rest.observed > calm_at:
                    return True
                calm_at = calm_at or rest.observed
            return False

        wait_until(
            self.rest,
            "nothing is under way",
            seconds,
            enough=at_rest,
            every=POLL_SECONDS,
            error=lambda late: NotAtRest(str(late.last)),
        )


class LoneSite:
    """A shop of one site, as a drill sees it."""

    settings: StackSettings
    site = reads_at = "home"

    @property
    def urls(self) -> Mapping[str, Urls]:
        return {self.site: api_urls(self.settings)}

    @property
    def run_id(self) -> str:
        return f"{time.time_ns():x}"


def await_rest(name: str, urls: Urls, seconds: float) -> None:
    """Wait until nothing is under way at a site. Raises NotAtRest, also where its query API does not respond."""
    try:
        with Shop(urls) as shop:
            shop.await_rest(seconds)
    except (NotAtRest, httpx.HTTPError) as left:
        raise NotAtRest(f"{name} does not come to rest: {str(left) or type(left).__name__}") from left
