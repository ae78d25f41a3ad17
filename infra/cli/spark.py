"""`daybook spark`: a real Spark cluster on this machine, for the jobs of analytics."""

import psutil
import typer

from analytics.terminal import Table, lines
from infra.base.journal import Phase
from infra.base.settings import StackSettings
from infra.cli.inspect import memory, own_settings
from infra.cli.lifecycle import shown, stop_detached, waiting_bar
from infra.cli.output import fail, notes, results
from infra.stack.embedded.java import jars_folder
from infra.stack.embedded.platform import start_supervisor
from infra.stack.embedded.spark import NAMES, cluster_journal, cluster_view, master_url

app = typer.Typer(no_args_is_help=True, help="A Spark cluster: one master, two workers of one core each.")


@app.command()
def up() -> None:
    """Start the master and two workers, wait until they are registered, print the setting for jobs.

    `DAYBOOK_SPARK_MASTER=… ./daybook analytics run` runs there. Ports: DAYBOOK_PORT_BASE + 77 and 80 to 84.
    """
    settings = own_settings()
    journal = cluster_journal(settings)
    if journal.supervised():
        fail(
            "the cluster is already running: `./daybook spark status` shows it, `./daybook spark down` stops it"
        )
    with waiting_bar() as progress:
        task = progress.add_task("Java's jars", total=len(NAMES))
        jars_folder("spark")
        start_supervisor(settings, journal, "infra.stack.embedded.spark", progress=shown(progress, task))
    results.print(f"DAYBOOK_SPARK_MASTER={master_url(settings)}")
    notes.print("With that setting, jobs run on the cluster. `./daybook spark down` stops it.")


@app.command()
def down() -> None:
    """Stop the cluster. A job that runs on it fails and leaves its outputs unchanged."""
    if not stop_detached(cluster_journal(StackSettings()), "Stopping the workers, then the master"):
        notes.print("The cluster is not running.")
        return
    notes.print("Stopped.")


@app.command()
def status() -> None:
    """Show the master, the workers, their free resources, and the running jobs.

    Exit code 1 unless the cluster is running and both workers are registered.
    """
    journal = cluster_journal(StackSettings())
    state = journal.read()
    if state is None or not journal.supervised():
        if state and state.failure:
            notes.print(lines(f"The last start failed: {state.failure}"))
        fail("the cluster is not running: `./daybook spark up` starts it")
    settings = StackSettings(port_base=state.port_base)
    table = Table("process", "pid", "memory", "ready", "restarts", "port")
    for member in state.members:
        ready = "yes" if member.ready and psutil.pid_exists(member.pid or 0) else "no"
        port = str(settings.port(member.name))
        table.add_row(
            member.name, str(member.pid or "-"), memory(member.pid), ready, str(member.restarts), port
        )
    results.print(table)
    view = cluster_view(settings) or {}
    cores = f"{view.get('coresused', 0)} of {view.get('cores', 0)} cores"
    used = f"{view.get('memoryused', 0)} of {view.get('memory', 0)} MB are used"
    results.print(f"{master_url(settings)}: {cores}, {used}")
    for job in view.get("activeapps", ()):
        results.print(f"{job['id']} {job['name']} {job['state']}")
    if state.phase is not Phase.RUNNING or not all(member.ready for member in state.members):
        raise typer.Exit(1)
