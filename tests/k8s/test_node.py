"""The overlay `single` really runs: what a pod's death, an update, a scaled StatefulSet and a drain do to the shop.

Needs a cluster whose node runs pods, and the images there. After each test every command has its outcome, and log and
read models are sound; the last one lets Spark audit all that the others have left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.base.settings import ROOT
from infra.base.waiting import wait_until
from infra.lab.load.clients import longest_gap
from infra.lab.load.load import Load
from infra.lab.load.orders import Shopping
from infra.lab.load.shop import await_rest
from tests.e2e.load import check_sound
from tests.k8s.node_shop import IMAGES, SECONDS, SITE, WORKLOADS, NodeShop, layout_job
from tests.pages import check, run_walk, walk

pytestmark = pytest.mark.timeout(1800)
RATE = 20.0
# All that a client may see during an update: a 503; no response within its own four seconds; and, as HTTP has it, a
# request that meets the end of an idle connection. No connection is refused.
HEALED = {
    "outcome_unknown",
    "overloaded",
    "log_unavailable",
    "TimeoutError",
    "ClientOSError",
    "ServerDisconnectedError",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeShop]:
    try:
        shop = NodeShop(tmp_path_factory.mktemp("node"))
    except (RuntimeError, AssertionError) as reason:
        pytest.skip(f"no process was run: {reason}")
    if missing := [image for image in IMAGES if image not in shop.images()]:
        pytest.skip(
            f"no process was run: the node lacks {', '.join(missing)} (docs/how-to/run-on-kubernetes.md)"
        )
    shop.remove()
    try:
        began = time.monotonic()
        shop.start()
        print(f"\nthe shop was ready after {time.monotonic() - began:.0f} s")
        yield shop
    finally:
        if not os.environ.get("DAYBOOK_KEEP"):
            shop.remove("--wait=false")


@contextmanager
def load(shop: NodeShop, folder: Path, name: str) -> Iterator[Load]:
    """Clients at work; at the end every command has an outcome, and log and read models are sound."""
    urls = shop.urls()
    began = time.time()
    with Load({SITE: urls}, SITE, Shopping(1, name), folder / name, RATE) as clients:
        yield clients
        assert clients.finish() == []
    accepted = [response.at for response in clients.responses if response.accepted]
    gap = longest_gap(accepted, began)[0]
    print(
        f"\n{name}: {len(clients.responses)} commands, {gap:.1f} s without a write, failed: {dict(clients.failed)}"
    )
    shop.await_ready()  # an API that lost its store has left its Service for a while
    await_rest("the shop", urls, SECONDS)
    with shop.kafka() as kafka, shop.database() as database_url:
        check_sound(kafka, database_url, clients.responses)


def go_on(clients: Load, commands: int = 40) -> None:
    """Until so many more commands were accepted."""
    since = time.time()
    wait_until(
        lambda: [row for row in clients.responses[-1000:] if row.accepted and row.sent > since],
        "commands are accepted",
        SECONDS,
        enough=lambda rows: len(rows) >= commands,
    )


def test_the_walk_of_the_readme(shop: NodeShop) -> None:
    urls = {f"DAYBOOK_{api.upper()}_URL": url for api, url in shop.urls().addresses.items()}
    # these APIs verify no tokens: the overlay names no issuer
    environment = {**os.environ, **urls, "DAYBOOK_AUTH": "X-Nobody: anybody"}
    runs = run_walk([step for step in walk("README.md") if "daybook env" not in step.command], environment)
    check(runs)
    assert '"status":"shipped"' in runs[-1].output.replace(" ", "")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_pod_is_killed(shop: NodeShop, tmp_path: Path, workload: str) -> None:
    name = workload.partition("/")[2]
    with load(shop, tmp_path, f"killed-{name}") as clients:
        go_on(clients)
        before = shop.pods()
        victim = next(pod for pod in before if pod.startswith(f"{name}-"))
        shop.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
        wait_until(
            lambda: victim not in shop.pods() or shop.pods()[victim] != before[victim], "it is gone", SECONDS
        )
        shop.await_ready()
        go_on(clients)


def test_workers_are_deleted_in_the_middle_of_transactions(shop: NodeShop, tmp_path: Path) -> None:
    """By force, so that Kubernetes starts the next owner of a slot without waiting for the last one's end."""
    with load(shop, tmp_path, "owners") as clients:
        for _turn in range(5):
            for worker in ("order-worker", "inventory-worker"):
                go_on(clients, 5)
                shop.kubectl("delete", "pod", f"{worker}-0", "--grace-period=0", "--force", "--wait=false")
        shop.await_ready()
        go_on(clients)


def test_an_update_refuses_nothing_that_a_repeat_does_not_heal(shop: NodeShop, tmp_path: Path) -> None:
    """With two pods of each write API, as in `ha`."""
    shop.kubectl("scale", "statefulset/order-api", "statefulset/inventory-api", "--replicas=2")
    shop.await_ready()
    with load(shop, tmp_path, "update") as clients:
        go_on(clients)
        for workload in (name for name in WORKLOADS if "postgres" not in name and "single" not in name):
            shop.kubectl("set", "image", workload, "*=daybook-services:next")
        shop.await_ready()
        go_on(clients)
    images = {
        container["image"]
        for pod in shop.read("pods", "-l", "app.kubernetes.io/part-of=daybook")["items"]
        for container in pod["spec"]["containers"]
        if "job-name" not in pod["metadata"]["labels"]
    }
    assert images == {"daybook-services:next"}
    assert set(clients.failed) <= HEALED


def test_scaling_workers_alone_is_safe(shop: NodeShop, tmp_path: Path) -> None:
    """A pod without a slot in the layout owns nothing: it waits, and the shop goes on."""
    with load(shop, tmp_path, "scaled") as clients:
        shop.kubectl("scale", "statefulset/order-worker", "--replicas=2")
        wait_until(shop.pods, "a second worker's pod", SECONDS, enough=lambda pods: "order-worker-1" in pods)
        go_on(clients, 200)
        (waiting,) = (
            pod for pod in shop.read("pods")["items"] if pod["metadata"]["name"] == "order-worker-1"
        )
        ready = {state["type"]: state["status"] for state in waiting["status"]["conditions"]}["Ready"]
        assert ready == "False"
        shop.kubectl("scale", "statefulset/order-worker", "--replicas=1")
        go_on(clients)


def test_another_slot_under_load(shop: NodeShop, tmp_path: Path) -> None:
    with load(shop, tmp_path, "layout") as clients:
        shop.kubectl("scale", "statefulset/order-worker", "--replicas=2")
        shop.apply([layout_job("order", 2)])
        shop.kubectl("wait", "job/layout-order", "--for=condition=Complete", f"--timeout={SECONDS:.0f}s")
        shop.await_ready()  # both: a slot that owns nothing is not ready
        go_on(clients, 200)
        shop.kubectl("delete", "job/layout-order")
        shop.apply([layout_job("order", 1)])
        shop.kubectl("wait", "job/layout-order", "--for=condition=Complete", f"--timeout={SECONDS:.0f}s")
        shop.kubectl("scale", "statefulset/order-worker", "--replicas=1")
        shop.await_ready()
        go_on(clients)


def test_a_drained_node_comes_back_with_its_volumes(shop: NodeShop, tmp_path: Path) -> None:
    claims = {claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in shop.read("pvc")["items"]}
    before = shop.pods()
    with load(shop, tmp_path, "drained") as clients:
        go_on(clients)
        drained = ["drain", shop.node, "--delete-emptydir-data", "--ignore-daemonsets", "--force"]
        shop.kubectl(*drained, "--pod-selector=!k8s-app", f"--timeout={SECONDS:.0f}s")
        shop.kubectl("uncordon", shop.node)
        shop.await_ready()
        go_on(clients)
    assert not before.items() & shop.pods().items()
    assert {
        claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in shop.read("pvc")["items"]
    } == claims
    assert claims.keys() >= {"data-postgres-0", "data-daybook-single-0"}


def test_spark_finds_nothing_that_differs(shop: NodeShop, spark_environment: dict[str, str]) -> None:
    with shop.kafka() as kafka, shop.database() as database_url:
        done = subprocess.run(
            [sys.executable, "-m", "analytics.jobs.audit", "--wait", "60"],
            cwd=ROOT,
            env={
                **os.environ,
                **spark_environment,
                "DAYBOOK_KAFKA": kafka,
                "DAYBOOK_DATABASE_URL": database_url,
            },
            capture_output=True,
            text=True,
            check=False,
        )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
