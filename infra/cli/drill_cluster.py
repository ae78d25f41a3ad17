"""`daybook drill cluster`: what three brokers promise, each promise put to the test and measured."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from infra.base.errors import DaybookError
from infra.base.settings import StackSettings
from infra.cli.output import fail, notes
from infra.cli.report_table import told
from infra.dr.steps import Show
from infra.lab.cluster.kafka_tool import ToolFailed
from infra.lab.cluster.rig import Rig
from infra.lab.drills.cluster.acks import acks as hold_acks
from infra.lab.drills.cluster.broker_loss import broker_loss as hold_broker_loss
from infra.lab.drills.cluster.curves import curves as hold_curves
from infra.lab.drills.cluster.elections import elections as hold_elections
from infra.lab.drills.cluster.groups import groups as hold_groups
from infra.lab.drills.cluster.racks import racks as hold_racks
from infra.lab.drills.cluster.reassign import reassignment as hold_reassignment
from infra.lab.drills.cluster.repartition import repartition as hold_repartition
from infra.lab.drills.cluster.retention import retention as hold_retention
from infra.lab.drills.cluster.rolling import rolling as hold_rolling
from infra.lab.drills.cluster.semantics import semantics as hold_semantics
from infra.lab.drills.cluster.sizes import sizes as hold_sizes
from infra.lab.drills.report import DrillReport
from infra.stack.site import home_settings

app = typer.Typer(
    no_args_is_help=True,
    help="Test what a cluster of three brokers promises. The drill starts the brokers.",
)
OWN_PORTS = 800  # beyond those of the stack that may be running

Seed = Annotated[int, typer.Option(help="Determines times and order of the faults.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where the report goes.")]
Drill: TypeAlias = Callable[[Rig, int, Path, Show], DrillReport]


@app.command("broker-loss")
def broker_loss(seed: Seed = 1, out: Out = None) -> None:
    """Kill one broker, then a second, under load: writes continue, then are refused; nothing is lost."""
    _hold(hold_broker_loss, "broker-loss", seed, out)


@app.command()
def elections(seed: Seed = 1, out: Out = None) -> None:
    """Read settings back; lose, elect and restore leaders; measure what unclean elections would lose."""
    _hold(hold_elections, "elections", seed, out)


@app.command()
def acks(seed: Seed = 1, out: Out = None) -> None:
    """Write with acks 0, 1 and all while the leader is killed, and count what was acknowledged and lost."""
    _hold(hold_acks, "acks", seed, out)


@app.command()
def rolling(seed: Seed = 1, out: Out = None) -> None:
    """Restart every node under load, each with a changed setting: no command may fail."""
    _hold(hold_rolling, "rolling", seed, out)


@app.command()
def repartition(seed: Seed = 1, out: Out = None) -> None:
    """Double the order service's partitions under load: every key's order is kept, no command is lost."""
    _hold(hold_repartition, "repartition", seed, out)


@app.command()
def reassign(seed: Seed = 1, out: Out = None) -> None:
    """Add a broker under load, move partitions to it and back, and remove it."""
    _hold(hold_reassignment, "reassign", seed, out)


@app.command()
def racks(seed: Seed = 1, out: Out = None) -> None:
    """Read in a rack: the replica there serves until it is killed."""
    _hold(hold_racks, "racks", seed, out)


@app.command()
def retention(seed: Seed = 1, out: Out = None) -> None:
    """Measure retention by time and size, segments, and compaction with tombstones: what is kept, and how long."""
    _hold(hold_retention, "retention", seed, out)


@app.command()
def sizes(seed: Seed = 1, out: Out = None) -> None:
    """Send an order of 1 MiB (accepted) and a larger one (refused at the edge); slow a client down by a quota."""
    _hold(hold_sizes, "sizes", seed, out)


@app.command()
def semantics(seed: Seed = 1, out: Out = None) -> None:
    """Kill a copier that promises at most, at least and exactly once: what each loses and doubles."""
    _hold(hold_semantics, "semantics", seed, out)


@app.command()
def groups(seed: Seed = 1, out: Out = None) -> None:
    """Kill a projection worker beside a spare one; measure what a group's first rebalance waits for."""
    _hold(hold_groups, "groups", seed, out)


@app.command()
def curves(seed: Seed = 1, out: Out = None) -> None:
    """Measure and draw batching, compression and sizes of records from 128 B to 1 MiB."""
    _hold(hold_curves, "curves", seed, out)


def _hold(drill: Drill, name: str, seed: int, out: Path | None) -> None:
    """Run a drill on a fresh cluster, show and keep its report; exit code 1 where a promise was not kept."""
    home = home_settings(StackSettings())
    own = home.home / "drill-cluster"
    folder = out or home.home / "drills" / f"cluster-{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(own, ignore_errors=True)
    try:
        with (
            notes.status("starting three brokers and a controller") as status,
            Rig(own, home.port_base + OWN_PORTS) as rig,
        ):
            report = drill(rig, seed, folder, status.update)
    except (DaybookError, ToolFailed, TimeoutError) as reason:
        fail(str(reason))
    told(report, folder)
