"""A cluster with the shop on it: the processes of `daybook up`, with three brokers as their log."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx

from infra.base.errors import NotReady
from infra.base.journal import Phase, StackJournal
from infra.base.waiting import wait_until
from infra.lab.cluster.cluster import Cluster
from infra.lab.cluster.settings import ClusterSettings
from infra.lab.retail.requests import Api
from infra.lab.retail.shop import NotAtRest, Shop, api_urls
from infra.stack.embedded.stack import members
from infra.stack.embedded.supervisor import Supervisor
from infra.stack.embedded.watched import broker_was_away

PROCESSES = (
    "postgres",
    "order-worker",
    "inventory-worker",
    "projection",
    "order-api",
    "inventory-api",
    "query-api",
)
OPEN_SECONDS = 240.0
REST_SECONDS = 180.0
POLL_SECONDS = 0.1
# A drill takes brokers away for a minute: no order expires meanwhile.
SETTLE_SECONDS = "600"


class Rig:
    """A context: the cluster runs from the beginning, the shop once it is asked for.

    The shop's processes are restarted when they end, as on any supervisor.
    """

    def __init__(self, folder: Path, port_base: int) -> None:
        self.cluster = Cluster(folder / "cluster", port_base)
        self.settings = ClusterSettings(
            home=folder / "shop", port_base=port_base, bootstrap=self.cluster.bootstrap
        )
        self.journal = StackJournal(self.settings.home)
        self._supervisor: Supervisor | None = None
        self._thread: threading.Thread | None = None

    @property
    def urls(self) -> Mapping[str, Mapping[Api, str]]:
        """The APIs of the one site there is."""
        return {"home": api_urls(self.settings)}

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close_shop()
        self.cluster.end()

    def open_shop(self) -> None:
        """Start what does not run yet, and return when all of it is ready. Raises NotReady."""
        if self._thread is None:
            os.environ.setdefault("DAYBOOK_SETTLE_SECONDS", SETTLE_SECONDS)
            rows = members(self.settings, PROCESSES)
            was_away = broker_was_away(self.cluster.bootstrap)
            self._supervisor = Supervisor(self.settings, os.getpid(), self.journal, rows, was_away)
            self._thread = threading.Thread(target=self._supervisor.run, name="supervisor", daemon=True)
            self._thread.start()

        def ready() -> bool:
            state = self.journal.read()
            if state is not None and state.phase is Phase.FAILED:
                raise NotReady(state.failure)
            return self.all_ready()

        wait_until(ready, lambda: f"the shop is ready: {self.journal.read()}", OPEN_SECONDS, error=NotReady)

    def close_shop(self) -> None:
        if self._supervisor is not None and self._thread is not None:
            self._supervisor.ask_to_stop()
            self._thread.join()
            self._thread = None

    def all_ready(self) -> bool:
        """Whether every process says so, now."""
        state = self.journal.read()
        return state is not None and len(state.members) > 0 and all(each.ready for each in state.members)

    def restarts(self) -> dict[str, int]:
        """How often each process was started again."""
        state = self.journal.read()
        return {each.name: each.restarts for each in state.members} if state else {}

    def pid(self, name: str) -> int:
        """The process of that name. Raises NotReady where it does not run."""
        state = self.journal.read()
        found = [each.pid for each in (state.members if state else ()) if each.name == name and each.pid]
        if not found or found[0] is None:
            raise NotReady(f"{name} does not run")
        return found[0]

    def await_rest(self) -> None:
        """Wait until conversations and read models have come to rest. Raises NotReady."""
        try:
            with Shop(self.urls["home"]) as shop:
                shop.await_rest(REST_SECONDS, lambda _: None)
        except (NotAtRest, httpx.HTTPError) as left:
            raise NotReady(f"the shop does not come to rest: {left!r}") from left
