"""The parts of one benchmark: a broker, PostgreSQL and processes of the shop, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import psutil

from contracts.topics import TOPICS
from infra.base.ports import HOST
from infra.base.settings import INSECURE, StackSettings
from infra.identity.caller import Caller
from infra.log.topics import Topic, catalogue, create_topics, ensure_site
from infra.stack.embedded.child import Child, Program
from infra.stack.embedded.kafka import site_nodes
from infra.stack.security import apply_security, prepare_identities
from infra.stack.shop import http_ready, principal_of
from infra.stack.tokens import issuer_of, verification
from tests.ports import free_base, free_ports
from tests.postgres_server import EmbeddedPostgres, create_tables_of_shop
from tests.servers import NodeServer

START_SECONDS = 240.0
INSECURE_RUN = "DAYBOOK_BENCH_INSECURE"


class Part:
    """A running process of the benchmark and the port that it serves."""

    def __init__(self, child: Child, port: int) -> None:
        self.child, self.port = child, port
        self.url = f"http://{HOST}:{port}"

    @property
    def pid(self) -> int:
        return self.child.pid

    def ready(self) -> bool:
        return http_ready(self.url)

    def kill(self) -> None:
        self.child.kill()

    def stop(self) -> None:
        self.child.stop()


class Rig:
    """A context with a broker with all topics and, by default, PostgreSQL; leaving it stops everything.

    Children die with this process, however it ends. Everything listens on loopback, on free ports. `partitions`
    replaces the catalogue's number of partitions of each service (0: leaves it). If `secured`, which it is unless
    DAYBOOK_BENCH_INSECURE says otherwise, the broker has TLS, users and rights, each process of the shop its own, and
    the APIs verify tokens, of which DAYBOOK_AUTH has one for the clients; otherwise all is as after `up --insecure`.
    """

    def __init__(
        self,
        *,
        postgres: bool = True,
        heap_megabytes: int = 384,
        partitions: int = 0,
        secured: bool = not os.environ.get(INSECURE_RUN),
    ) -> None:
        self._partitions = partitions
        self._folder = Path(tempfile.mkdtemp(prefix="daybook-bench-"))
        self._site = StackSettings(home=self._folder, port_base=free_base())
        if not secured:
            (self._folder / INSECURE).touch()
        ((node,),) = site_nodes(self._site, linked=False)
        self.broker = NodeServer(replace(node, heap_megabytes=heap_megabytes))
        self.postgres = EmbeddedPostgres(self._folder / "postgres", *free_ports(1)) if postgres else None
        self.parts: dict[str, Part] = {}

    @property
    def kafka(self) -> str:
        return self._site.kafka

    @property
    def caller(self) -> Caller:
        """Signs what clients send to this shop: DAYBOOK_AUTH is for the one that was entered last."""
        return Caller(issuer_of(self._site))

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def database_url(self) -> str:
        assert self.postgres is not None, "this rig has no PostgreSQL"
        return self.postgres.url()

    def __enter__(self) -> Rig:
        try:
            prepare_identities(self._site)
            if self._site.secured:
                os.environ["DAYBOOK_AUTH"] = issuer_of(self._site).demo_header()
            self.broker.start(START_SECONDS)
            apply_security(self._site)
            if self.postgres is not None:
                self.postgres.start(START_SECONDS)
            create_topics(self.kafka, self._topics())
            ensure_site(self.kafka)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for part in self.parts.values():
            part.kill()
        for store in (self.broker, self.postgres):
            if store is not None and store._child is not None:
                store.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _topics(self) -> Mapping[str, Topic]:
        divided = {name for topics in TOPICS.values() for name in topics if name != topics.outcomes}
        return {
            name: replace(topic, partitions=self._partitions)
            if self._partitions and name in divided
            else topic
            for name, topic in catalogue().items()
        }

    def start(self, name: str, module: str, *arguments: str, **settings: object) -> Part:
        """A Python process; `settings` become DAYBOOK_ variables. Returns at once, see `await_ready`."""
        port, health = free_ports(2)
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "DAYBOOK_KAFKA": self.kafka,
            "DAYBOOK_DATABASE_URL": self.database_url if self.postgres else "",
            "DAYBOOK_HTTP_HOST": HOST,
            "DAYBOOK_HTTP_PORT": str(port),
            # what is no API has health alone
            "DAYBOOK_HEALTH_PORT": str(port if arguments in (("worker",), ("project",)) else health),
            "DAYBOOK_HASH_KEY": "a key for benchmarks alone",
            **verification(self._site),
            **{f"DAYBOOK_{key.upper()}": str(value) for key, value in settings.items()},
        }
        program = Program(name, (sys.executable, "-m", module, *arguments), environment, stop_seconds=60)
        part = Part(Child(program, self._folder / f"{name}.log"), port)
        self.parts[name] = part
        return part

    def shop(self, name: str, **settings: object) -> Part:
        """One of the shop's processes by its name, such as order-worker; not yet ready."""
        service, _, part = name.rpartition("-")
        if name in ("projection", "query-api"):
            create_tables_of_shop(self.database_url)
        module = {"": "services.projection.main", "query": "services.projection.main"}.get(
            service, f"services.{service}.service"
        )
        settings = {"kafka": self._site.kafka_as(principal_of(name)), **settings}
        return self.start(
            name, module, {"projection": "project", "query-api": "query"}.get(name, part), **settings
        )

    def await_ready(self, *parts: Part) -> None:
        """Return when all are ready. Raises NotReady with the end of the log of the one that is not."""
        for part in parts or tuple(self.parts.values()):
            part.child.wait_until(part.ready, START_SECONDS)


class Cores:
    """CPU time of the processes of a rig over an interval, in cores; `more` are other processes by name."""

    def __init__(self, rig: Rig, more: Mapping[str, int] | None = None) -> None:
        pids = {name: part.pid for name, part in rig.parts.items() if part.child.exit_code is None}
        pids |= more or {}
        pids["broker"] = rig.broker.child.pid
        if rig.postgres is not None:
            pids["postgres"] = rig.postgres.child.pid
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._began, self._before = time.perf_counter(), self._used()

    def taken(self) -> Mapping[str, float]:
        """Per process, since this object was made: `cpu <name>` → cores."""
        passed, used = time.perf_counter() - self._began, self._used()
        return {f"cpu {name}": round((used[name] - self._before[name]) / passed, 3) for name in used}

    def _used(self) -> dict[str, float]:
        return {name: _family(process) for name, process in self._processes.items()}


def _family(process: psutil.Process) -> float:
    """CPU seconds of a process and its children (PostgreSQL has one per connection), ended ones too."""
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        try:
            times = member.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
