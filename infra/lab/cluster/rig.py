"""A cluster with the shop on it: the processes of `daybook up`, with three brokers as their log."""

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from contracts.kafka_address import bootstrap_of
from infra.base.errors import NotReady
from infra.base.journal import Phase, StackJournal
from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.identity.authority import Authority
from infra.lab.cluster.cluster import Cluster
from infra.lab.load.shop import LoneSite, await_rest
from infra.stack.embedded.stack import members
from infra.stack.embedded.supervisor import Supervisor, broker_was_away
from infra.stack.security import INTERNAL, apply_security, prepare_identities
from infra.stack.shop import NAMES

PROCESSES = tuple(name for name in NAMES if name not in ("broker", "registry"))
OPEN_SECONDS = 240.0
REST_SECONDS = 180.0
# A drill takes brokers away for a minute: no order expires meanwhile.
SETTLE_SECONDS = "600"
SITE = LoneSite.site


class ClusterSettings(StackSettings):
    """Those of a single site, on the brokers of the cluster: lists of their listeners for users, and for brokers."""

    bootstrap: Annotated[str, Field(min_length=1)]
    internal: Annotated[str, Field(min_length=1)]

    def bootstrap_of(self, kind: str) -> str:
        return self.internal if kind == INTERNAL else self.bootstrap


class ClusterRig(LoneSite):
    """A context: the cluster runs from the beginning, the shop once it is opened.

    The shop's processes are restarted when they end, as by any supervisor.
    """

    def __init__(self, folder: Path, port_base: int) -> None:
        home = folder / "shop"
        authority = Authority(StackSettings(home=home).kafka_identities)
        self.cluster = Cluster(folder / "cluster", port_base, authority)
        self.settings = ClusterSettings(
            home=home,
            port_base=port_base,
            bootstrap=self.cluster.for_users,
            internal=bootstrap_of(self.cluster.bootstrap),
        )
        self.journal = StackJournal(self.settings.home)
        self._supervisor: Supervisor | None = None
        self._thread: threading.Thread | None = None
        self._restarts_before = Counter[str]()

    def __enter__(self) -> Self:
        prepare_identities(self.settings)
        self.cluster.__enter__()
        try:
            apply_security(self.settings)
        except BaseException:
            self.cluster.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._supervisor is not None and self._thread is not None:
            self._supervisor.request_stop()
            self._thread.join()
        self.cluster.end()

    def open_shop(self) -> None:
        """Start what does not run yet, and return when all of it is ready. Raises NotReady."""
        if self._thread is None:
            os.environ.setdefault("DAYBOOK_SETTLE_SECONDS", SETTLE_SECONDS)
            rows = members(self.settings, PROCESSES)
            was_away = broker_was_away(self.cluster.bootstrap)
            self._supervisor = Supervisor(self.settings, self.journal, rows, was_away)
            self._thread = threading.Thread(target=self._supervisor.run, name="supervisor", daemon=True)
            self._thread.start()

        def ready() -> bool:
            state = self.journal.read()
            if state is not None and state.phase is Phase.FAILED:
                raise NotReady(state.failure)
            return state is not None and bool(state.members) and all(row.ready for row in state.members)

        wait_until(ready, lambda: f"the shop is ready: {self.journal.read()}", OPEN_SECONDS, error=NotReady)
        self._restarts_before = self._restarts()

    def restarted(self) -> Counter[str]:
        """The processes that were started again since the shop was opened, and how often."""
        return self._restarts() - self._restarts_before

    def _restarts(self) -> Counter[str]:
        state = self.journal.read()
        return Counter({member.name: member.restarts for member in state.members} if state else {})

    def pid(self, name: str) -> int:
        """The process of that name. Raises NotReady where it does not run."""
        state = self.journal.read()
        for member in state.members if state else ():
            if member.name == name and member.pid:
                return member.pid
        raise NotReady(f"{name} does not run")

    def await_rest(self) -> None:
        """Wait until nothing is under way. Raises NotAtRest."""
        await_rest("the shop", self.urls[SITE], REST_SECONDS)
