"""`daybook drill`: failures rehearsed under load, on two sites, on three brokers or on containers, with a report."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Annotated, Any

import httpx
import typer
from confluent_kafka import KafkaException
from rich.text import Text

from analytics.terminal import Table
from infra.base.errors import DaybookError
from infra.base.settings import StackSettings
from infra.cli.output import fail, notes, results
from infra.lab.cluster.rig import ClusterRig
from infra.lab.drills import containers
from infra.lab.drills.cluster.availability import BROKER_LOSS, REASSIGN, REPARTITION, ROLLING, UPGRADE
from infra.lab.drills.cluster.curves import CURVES
from infra.lab.drills.cluster.followers import REPLICA_LAG, SEGMENT_RECOVERY
from infra.lab.drills.cluster.groups import GROUPS, STATIC_MEMBERS
from infra.lab.drills.cluster.losses import DISK_LOSS, QUORUM_LOSS
from infra.lab.drills.cluster.replication import ACKNOWLEDGEMENTS, ELECTIONS, RACKS
from infra.lab.drills.cluster.retries import RETRIES
from infra.lab.drills.cluster.semantics import COPIES
from infra.lab.drills.cluster.storage import RETENTION, SIZES
from infra.lab.drills.clusters import CLUSTERS_FAILBACK, CLUSTERS_PLANNED, CLUSTERS_UNPLANNED
from infra.lab.drills.drill import Drill
from infra.lab.drills.mirror import MIRROR_LAG, mirror_crash
from infra.lab.drills.pair import Pair
from infra.lab.drills.report import RUN_COLUMNS, DrillReport, append_run, read_runs, write
from infra.lab.drills.router import routed
from infra.lab.drills.site_loss import DESTROYED
from infra.lab.drills.switchover import FAILBACK, PLANNED
from infra.lab.drills.takeover import BOTH_SITES, REPLACED, SPLIT_BRAIN, unplanned
from infra.stack.compose.engine import Failure, compose_home
from infra.stack.site import as_started, home_settings

app = typer.Typer(no_args_is_help=True)
cluster_app = typer.Typer(no_args_is_help=True)
app.add_typer(cluster_app, name="cluster", help="Test what three brokers promise. The drill starts them.")
SITES_PORTS, CLUSTER_PORTS = 400, 800  # beyond those of the stack that may be running
# Of compose: a project beside the shop's, the same for all drills of a campaign.
DRILL_PROJECT = f"{os.environ.get('COMPOSE_PROJECT_NAME', 'daybook')}-drill"
HELD_SECONDS = 3.0
FAILURES = (DaybookError, TimeoutError, KafkaException, httpx.HTTPError)
DRILLS: tuple[Drill[Any, Any], ...] = (
    *(unplanned(), BOTH_SITES, PLANNED, FAILBACK, SPLIT_BRAIN, DESTROYED, REPLACED, mirror_crash()),
    *(MIRROR_LAG, routed(), CLUSTERS_PLANNED, CLUSTERS_UNPLANNED, CLUSTERS_FAILBACK),
)
CLUSTER_DRILLS: tuple[Drill[Any, Any], ...] = (
    *(BROKER_LOSS, ELECTIONS, ACKNOWLEDGEMENTS, ROLLING, REPARTITION, REASSIGN, RACKS, RETENTION),
    *(SIZES, COPIES, GROUPS, CURVES, QUORUM_LOSS, DISK_LOSS, RETRIES, STATIC_MEMBERS),
    *(REPLICA_LAG, SEGMENT_RECOVERY, UPGRADE),
)

Seed = Annotated[int, typer.Option(help="Determines times, order and kind of the faults.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where the report goes.")]
Running = Annotated[bool, typer.Option("--running", help="Use the two running sites, with their orders.")]


@app.callback()
def drill(context: typer.Context) -> None:
    """Rehearse failures under load, with a report: two sites, three brokers, or containers."""
    if StackSettings().stack == "compose" and context.invoked_subcommand == "cluster":
        fail("drill cluster works only on the embedded stack: omit --stack compose")


def _offer(drill: Drill[Any, Any]) -> None:
    @app.command(drill.name, help=f"{drill.claim} Takes about {drill.minutes} minutes.")
    def command(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
        _run_on_sites(drill, seed, out, running)


def _offer_on_cluster(drill: Drill[Any, Any]) -> None:
    @cluster_app.command(drill.name.removeprefix("cluster "), help=drill.claim)
    def command(seed: Seed = 1, out: Out = None) -> None:
        _run_on_cluster(drill, seed, out)


for declared in DRILLS:
    _offer(declared)
for declared in CLUSTER_DRILLS:
    _offer_on_cluster(declared)


def _run_on_sites(drill: Drill[Any, Any], seed: int, out: Path | None, running: bool) -> None:
    name, settings = drill.name, _site_settings(running)
    if settings.stack == "compose" and not running:
        os.environ["COMPOSE_PROJECT_NAME"] = DRILL_PROJECT
    pair = Pair(settings)
    folder = _folder(out, f"{name}-{seed}")
    try:
        if not running:
            notes.print("Starting two sites for the drill.")
            pair.start(drill.brokers)
        with notes.status("") as status:
            report = drill.run(pair, seed, folder, status.update)
        if settings.stack == "compose":
            report.typed = f"{settings.typed} drill {name} --seed {seed}"
    except FAILURES as reason:
        fail(str(reason))
    finally:
        if not running:
            try:
                pair.run("down")
            except FAILURES as error:  # it must not hide why the drill failed
                notes.print(str(error))
    _show(report, folder)


def _site_settings(running: bool) -> StackSettings:
    home = home_settings(StackSettings())
    if home.stack == "compose":
        own = {"home": compose_home(home.home / "drill"), "port_base": home.port_base + SITES_PORTS}
        return home if running else home.model_copy(update=own)
    if not running:
        return StackSettings(home=home.home / "drill", port_base=home.port_base + SITES_PORTS)
    if (started := as_started(home)) is None:
        fail("the stack is not running: `./daybook up --sites 2`, or omit --running")
    return started


def _run_on_cluster(drill: Drill[Any, Any], seed: int, out: Path | None) -> None:
    """On a new cluster, whose folder is removed before the next drill."""
    home = home_settings(StackSettings())
    own = home.home / "drill-cluster"
    folder = _folder(out, f"{drill.name.replace(' ', '-')}-{seed}")
    shutil.rmtree(own, ignore_errors=True)
    try:
        with (
            notes.status("starting three brokers and three controllers") as status,
            ClusterRig(own, home.port_base + CLUSTER_PORTS) as rig,
        ):
            report = drill.run(rig, seed, folder, status.update)
    except FAILURES as reason:
        fail(str(reason))
    _show(report, folder)


@app.command("containers")
def break_containers(
    failure: Annotated[
        list[Failure] | None,
        typer.Option(help="The failure; can be repeated. Without --container: for every running container."),
    ] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A container, as in `status`. Without --failure: all four."),
    ] = None,
    held: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long a failure lasts before its repair.")
    ] = HELD_SECONDS,
    seed: Seed = 1,
    out: Out = None,
) -> None:
    """Break containers of the running shop, one after the other, under load: with --stack compose.

    Clients send ten commands a second and repeat each until there is an outcome. Meanwhile a container is
    killed, paused, disconnected from the network or restarted, and repaired; when all respond again, the next
    one is broken. Six failures by default: a broker killed, PostgreSQL restarted, the order worker killed, the
    inventory worker paused, the projection disconnected, the order API restarted.

    The report shows for each failure how long no write was acknowledged and no read was served. At the end,
    every command must have an outcome, and the raw log must satisfy every invariant. The orders of the drill
    stay in the shop. Ctrl-C repairs what is broken, then ends.
    """
    settings, failures, names = StackSettings(), failure or [], container or []
    if settings.stack != "compose":
        fail("this drill needs the containers: `./daybook --stack compose drill containers`")
    try:
        with notes.status("") as status:
            shop = containers.running_shop(settings)
            faults = containers.choose(shop.running, failures, names, Random(f"containers {seed}"))
            folder = _folder(out, f"containers-{seed}")
            report = containers.break_containers(faults, held).run(shop, seed, folder, status.update)
    except FAILURES as reason:
        fail(str(reason))
    report.typed = _typed(failures, names, held, seed)
    _show(report, folder)


def _typed(failures: list[Failure], names: list[str], held: float, seed: int) -> str:
    options = [f"--failure {kind}" for kind in failures]
    options += [f"--container {shlex.quote(name)}" for name in names]
    options += [f"--held {held:g}"] if held != HELD_SECONDS else []
    return " ".join(["./daybook --stack compose drill containers", *options, f"--seed {seed}"])


def _folder(out: Path | None, name: str) -> Path:
    folder = out or _runs().parent / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _show(report: DrillReport, folder: Path) -> None:
    """Write the report to `folder` and show it; exit code 1 where a promise was not kept."""
    write(report, folder)
    append_run(report, _runs())
    results.print(report_table(report))
    results.print(f"{folder / 'report.md'}")
    if not report.passed:
        fail("not every promise was kept")


@app.command("campaign")
def hold_campaign(
    seed: Seed = 1,
    minutes: Annotated[
        int, typer.Option(help="A drill that would take longer is left for the next time.")
    ] = 60,
) -> None:
    """Hold every drill on two sites, one after the other, each on new sites, for up to an hour.

    Run it again for what is left: on two cores it takes three such hours. A drill whose promises were all kept with the
    same seed, as `drill runs` shows, is not held again.
    """
    until = time.monotonic() + minutes * 60
    held = {run[1] for run in read_runs(_runs()) if run[2:4] == [str(seed), "yes"]}
    broken, left = [], []
    for drill in (drill for drill in DRILLS if drill.name not in held):
        if time.monotonic() + drill.minutes * 60 > until:
            left.append(drill.name)
            continue
        notes.print(f"{drill.name} with seed {seed}, about {drill.minutes} minutes")
        if _in_own_process(drill.name, seed):
            broken.append(drill.name)
    show_runs()
    if left:
        notes.print(f"Not held for want of time: {', '.join(left)}. Run it again to hold them.")
    if broken:
        fail(f"not every promise was kept by {', '.join(broken)}: run it again to repeat these alone")


def _in_own_process(name: str, seed: int) -> int:
    """Hold a drill and return the exit code. Clients of Kafka that outlive a drill have its sites' certificates."""
    settings = StackSettings()
    own = {"DAYBOOK_HOME": str(settings.named_home), "DAYBOOK_STACK": "embedded"}
    daybook = (sys.executable, "-m", "infra.cli", "--stack", settings.stack)
    typed = (*daybook, "drill", name, "--seed", str(seed))
    # Not `run`: interrupted, it would kill the drill before that stops its sites.
    return subprocess.Popen(typed, env=os.environ | own).wait()


@app.command("runs")
def show_runs() -> None:
    """Show all runs of drills on this stack: what was lost, and for how long nothing was written."""
    if rows := read_runs(_runs()):
        results.print(Table(*RUN_COLUMNS, rows=rows))
    else:
        notes.print("No drill was held on this stack: `./daybook drill --help` shows all.")


def _runs() -> Path:
    return home_settings(StackSettings()).home / "drills" / "runs.csv"


def report_table(report: DrillReport) -> Table:
    """Each promise beside what was measured."""
    rows = (
        (promise.what, promise.promised, promise.measured, "yes" if promise.kept else Text("no", "red"))
        for promise in report.promises
    )
    return Table("", "promised", "measured", "kept", rows=rows, title=f"{report.drill}, seed {report.seed}")
