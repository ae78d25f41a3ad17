"""`daybook drill`: a rehearsal of what goes wrong, under load, with a report."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from infra.base.errors import DaybookError
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.cli import drill_cluster, drill_containers
from infra.cli.output import fail, notes
from infra.cli.report_table import told
from infra.dr.steps import Show
from infra.lab.drills.failback import failback as hold_failback
from infra.lab.drills.mirror import mirror_crash as hold_mirror_crash
from infra.lab.drills.mirror import mirror_lag_drill
from infra.lab.drills.pair import Pair
from infra.lab.drills.planned import planned as hold_planned
from infra.lab.drills.report import DrillReport
from infra.lab.drills.split_brain import split_brain as hold_split_brain
from infra.lab.drills.unplanned import unplanned as hold_unplanned
from infra.stack.compose.engine import compose_home
from infra.stack.site import home_settings

app = typer.Typer(no_args_is_help=True)
app.add_typer(drill_cluster.app, name="cluster")
app.command("containers")(drill_containers.containers)
OWN_PROJECT = "daybook-drill"
OWN_PORTS = 400  # beyond those of the stack that may be running

Seed = Annotated[int, typer.Option(help="Determines times, order and kind of the faults.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where the report goes.")]
Running = Annotated[bool, typer.Option("--running", help="Use the two running sites, with their orders.")]
Drill: TypeAlias = Callable[[Pair, int, Path, Show], DrillReport]


@app.callback()
def drill(context: typer.Context) -> None:
    """Rehearse failures under load, with a report: two sites, three brokers, or containers."""
    if StackSettings().stack == "compose" and context.invoked_subcommand == "cluster":
        fail("drill cluster works only on the embedded stack: omit --stack compose")


@app.command()
def unplanned(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
    """Kill, freeze or disconnect the active site under load, fail over, and account for every write."""
    _hold("unplanned", hold_unplanned, seed, out, running)


@app.command()
def planned(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
    """Switch over under load: nothing may be lost, and both sites must be equal afterwards."""
    _hold("planned", hold_planned, seed, out, running)


@app.command()
def failback(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
    """Lose a site, rebuild it and fail back to it under load: nothing is lost, nothing is copied twice."""
    _hold("failback", hold_failback, seed, out, running)


@app.command("split-brain")
def split_brain(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
    """Disconnect two live sites, promote the passive one, reconnect them: the old one must stop writing."""
    _hold("split-brain", hold_split_brain, seed, out, running)


@app.command("mirror-crash")
def mirror_crash(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
    """Kill the mirror twice under load, with aborted transactions: nothing is doubled or missing."""
    _hold("mirror-crash", hold_mirror_crash, seed, out, running)


@app.command("mirror-lag")
def mirror_lag(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
    """Cut the link between the sites under load, then delay it: the lag must be reported and caught up."""
    _hold("mirror-lag", mirror_lag_drill, seed, out, running)


def _hold(name: str, drill: Drill, seed: int, out: Path | None, running: bool) -> None:
    """Run a drill, show and keep its report; exit code 1 where a promise was not kept."""
    settings = _settings(running)
    if settings.stack == "compose" and not running:
        # A project of its own, beside the shop's.
        os.environ["COMPOSE_PROJECT_NAME"] = OWN_PROJECT
    pair = Pair(settings)
    folder = out or pair.settings.home / "drills" / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not running:
            notes.print("Starting two sites for the drill.")
            pair.start()
        with notes.status("") as status:
            report = drill(pair, seed, folder, status.update)
        if settings.stack == "compose":
            report.typed = f"{settings.typed} drill {name} --seed {seed}"
    except (DaybookError, TimeoutError) as reason:
        fail(str(reason))
    finally:
        if not running:
            pair.run("down")
    told(report, folder)


def _settings(running: bool) -> StackSettings:
    home = home_settings(StackSettings())
    if home.stack == "compose":
        own = {"home": compose_home(home.home / "drill"), "port_base": home.port_base + OWN_PORTS}
        return home if running else home.model_copy(update=own)
    if not running:
        return StackSettings(home=home.home / "drill", port_base=home.port_base + OWN_PORTS)
    state = StackJournal(home.home).read()
    if state is None:
        fail("the stack is not running: `./daybook up --sites 2`, or omit --running")
    return StackSettings(home=home.home, port_base=state.port_base, site="home")
