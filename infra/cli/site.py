"""`daybook site`: rebuilds one of two sites."""

from typing import Annotated

import msgspec
import typer

from infra.base.settings import StackSettings
from infra.cli import failover
from infra.cli.acts import Why, recorded
from infra.cli.output import notes, results
from infra.cli.precautions import Confirmed, confirm_site, only_command
from infra.dr.incident import Incident, situation
from infra.dr.rebuild import Rebuilt, rebuild_site, rebuildable
from infra.dr.report import make_report

app = typer.Typer(no_args_is_help=True, help="One of two sites: rebuild it.")


@app.callback()
def site() -> None:
    # A group, also while it has one command.
    pass


@app.command()
def rebuild(
    name: Annotated[str, typer.Argument(metavar="home|away", help="The site to empty and copy again.")],
    confirmed: Confirmed = "",
    force: Annotated[bool, typer.Option("--force", help="Although it is a healthy copy.")] = False,
    as_json: failover.AsJson = False,
    why: Why = "",
) -> None:
    """Empty a site that is not active, and copy the active one into it while writes go on.

    It works with the old disk, which is archived, and without. If it is interrupted, run it again.
    """
    settings = StackSettings()
    with only_command(settings, f"site rebuild {name}"), failover.failing(settings):
        incident = situation(settings).history.incident
        if incident is not None and incident.switch.source == name:
            report_first(settings, incident)
        rebuilding = rebuildable(settings, name, force)
        confirm_site(name, rebuilding.consequences, confirmed)
        act = recorded("site rebuild", name, why)
        with act, notes.status("Checking both sites") as status:
            done = rebuild_site(rebuilding, status.update)
    if as_json:
        results.print(msgspec.json.encode(done, enc_hook=str).decode())
        return
    show_rebuilt(done)


def report_first(settings: StackSettings, incident: Incident) -> None:
    """Make the report unless there is one: the old log is about to go."""
    if "reported" in incident.done:
        return
    with notes.status("Comparing both logs") as status:
        report = make_report(settings, status.update, notes.print)
    notes.print(
        f"{len(report.acknowledged)} acknowledged commands were not copied: `./daybook failover reconcile` lists them."
    )


def show_rebuilt(done: Rebuilt) -> None:
    """Print the steps of a rebuild, and its result."""
    results.print(failover.table_of(done.steps))
    rate = done.events / done.seconds
    results.print(
        f"{done.site} is a copy of {done.active} again: {done.events:,} events in {done.seconds:.1f} s, "
        f"{rate:,.0f} a second with the starts."
    )
    if done.archive is not None:
        results.print(
            f"Its old log and database are in {done.archive}; remove them when nobody needs them any more."
        )
