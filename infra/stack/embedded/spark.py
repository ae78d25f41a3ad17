"""A small Spark cluster: a standalone master and two workers of one core each, on loopback.

`python -m infra.stack.embedded.spark` supervises it in the foreground; `daybook spark up` starts it detached. It
has its own journal, so that it starts and stops independently of the shop.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from infra.base.errors import NotReady
from infra.base.http import local_http
from infra.base.journal import StackJournal
from infra.base.ports import HOST
from infra.base.settings import StackSettings
from infra.stack.embedded.child import Program
from infra.stack.embedded.java import java_home_for_spark
from infra.stack.embedded.stack import Member
from infra.stack.embedded.supervisor import supervise

MASTER = "spark-master"
WORKERS = ("spark-worker-1", "spark-worker-2")
NAMES = (MASTER, *WORKERS)
CORES = 1
EXECUTOR_MEGABYTES = 768  # of each worker, for executors; beside it the worker itself
DAEMON_MEGABYTES = 128
READY_SECONDS = 180.0
_PROBE_SECONDS = 3.0
_CLASSES = "org.apache.spark.deploy"


def cluster_journal(settings: StackSettings) -> StackJournal:
    """The journal of the cluster's supervisor."""
    return StackJournal(settings.home / "spark")


def master_url(settings: StackSettings) -> str:
    """The value of DAYBOOK_SPARK_MASTER for jobs."""
    return f"spark://{HOST}:{settings.port(MASTER)}"


def cluster_view(settings: StackSettings) -> Mapping[str, Any] | None:
    """The master's view of itself, its workers and applications; None when it does not respond."""
    url = f"http://{HOST}:{settings.port(f'{MASTER}-ui')}/json/"
    try:
        response = local_http().get(url, timeout=_PROBE_SECONDS)
        view: Mapping[str, Any] = msgspec.json.decode(response.content) if response.is_success else {}
        return view or None
    except (httpx.HTTPError, msgspec.DecodeError):
        return None


def _master(settings: StackSettings) -> Member:
    port, ui = settings.port(MASTER), settings.port(f"{MASTER}-ui")
    arguments = ("--host", HOST, "--port", str(port), "--webui-port", str(ui))

    def is_alive() -> bool:
        view = cluster_view(settings)
        return view is not None and view.get("status") == "ALIVE"

    return Member(
        MASTER,
        (port, ui),
        lambda: _program(MASTER, f"{_CLASSES}.master.Master", arguments),
        is_alive,
        READY_SECONDS,
        alive=is_alive,
    )


def _worker(settings: StackSettings, name: str) -> Member:
    port, ui = settings.port(name), settings.port(f"{name}-ui")
    folder = (settings.home / "spark" / name).absolute()
    address = ("--host", HOST, "--port", str(port), "--webui-port", str(ui), "--work-dir", str(folder))
    size = ("--cores", str(CORES), "--memory", f"{EXECUTOR_MEGABYTES}m")

    def is_registered() -> bool:
        workers = (cluster_view(settings) or {}).get("workers", ())
        return any(worker["port"] == port and worker["state"] == "ALIVE" for worker in workers)

    return Member(
        name,
        (port, ui),
        lambda: _program(name, f"{_CLASSES}.worker.Worker", (*address, *size, master_url(settings))),
        is_registered,
        READY_SECONDS,
    )


def _program(name: str, main_class: str, arguments: tuple[str, ...]) -> Program:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotReady("PySpark, whose wheel brings the cluster, is not installed: run `make setup`")
    home = Path(spec.origin).parent
    # The caller's environment may configure another Spark.
    own = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    options = [
        # Master and worker only coordinate: they should be small and start quickly.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # The master would also open port 6066.
        "-Dspark.master.rest.enabled=false",
        # Executors' folders of jobs that are done: logs and shipped code, removed after a day.
        "-Dspark.worker.cleanup.enabled=true",
        "-Dspark.worker.cleanup.appDataTtl=86400",
    ]
    environment = own | {
        "JAVA_HOME": str(java_home_for_spark()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,  # the web pages too
        "SPARK_DAEMON_MEMORY": f"{DAEMON_MEGABYTES}m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(options),
    }
    return Program(name, (str(home / "bin" / "spark-class"), main_class, *arguments), environment)


if __name__ == "__main__":
    own = StackSettings()
    rows = [[_master(own)], [_worker(own, name) for name in WORKERS]]
    sys.exit(supervise(own, cluster_journal(own), rows))
