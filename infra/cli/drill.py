"""`daybook drill`: a rehearsal of what goes wrong, under load, with a report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.base.errors import DaybookError
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.cli import drill_cluster, drill_containers
from infra.cli.output import fail, notes
from infra.cli.report_table import told
from infra.lab.drills.drill import Drill
from infra.lab.drills.failback import FAILBACK
from infra.lab.drills.mirror import MIRROR_LAG, mirror_crash
from infra.lab.drills.pair import Pair
from infra.lab.drills.planned import PLANNED
from infra.lab.drills.split_brain import SPLIT_BRAIN
from infra.lab.drills.unplanned import unplanned
from infra.stack.compose.engine import compose_home
from infra.stack.site import home_settings

app = typer.Typer(no_args_is_help=True)
app.add_typer(drill_cluster.app, name="cluster")
app.command("containers")(drill_containers.containers)
OWN_PORTS = 400  # beyond those of the stack that may be running

Seed = Annotated[int, typer.Option(help="Determines times, order and kind of the faults.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where the report goes.")]
Running = Annotated[bool, typer.Option("--running", help="Use the two running sites, with their orders.")]
DRILLS = (unplanned(), PLANNED, FAILBACK, SPLIT_BRAIN, mirror_crash(), MIRROR_LAG)


@app.callback()
def drill(context: typer.Context) -> None:
    """Rehearse failures under load, with a report: two sites, three brokers, or containers."""
    if StackSettings().stack == "compose" and context.invoked_subcommand == "cluster":
        fail("drill cluster works only on the embedded stack: omit --stack compose")


def _offer(drill: Drill[Any]) -> None:
    @app.command(drill.name, help=drill.claim)
    def held(seed: Seed = 1, out: Out = None, running: Running = False) -> None:
        _hold(drill, seed, out, running)


for each in DRILLS:
    _offer(each)


def _hold(drill: Drill[Any], seed: int, out: Path | None, running: bool) -> None:
    """Run a drill, show and keep its report; exit code 1 where a promise was not kept."""
    name, settings = drill.name, _settings(running)
    if settings.stack == "compose" and not running:
        # A project of its own, beside the shop's.
        os.environ["COMPOSE_PROJECT_NAME"] = f"{os.environ.get('COMPOSE_PROJECT_NAME', 'daybook')}-drill"
    pair = Pair(settings)
    folder = out or pair.settings.home / "drills" / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not running:
            notes.print("Starting two sites for the drill.")
            pair.start()
        with notes.status("") as status:
            report = drill.hold(pair, seed, folder, status.update)
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
