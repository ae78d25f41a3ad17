"""`daybook site rebuild` and `daybook failback`: a site that was lost becomes a copy, and the active one, again."""

from typing import Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli import failover
from infra.cli.acts import Why, only_command, recorded
from infra.cli.failover import Confirmed, confirm_site
from infra.cli.lifecycle import client_settings
from infra.cli.output import AsJson, fail, notes, print_json, results
from infra.dr.incident import Incident, situation
from infra.dr.rebuild import Rebuilt, fail_back, open_incident, rebuild_site, rebuildable
from infra.dr.report import make_report

app = typer.Typer()
site_app = typer.Typer(no_args_is_help=True, help="One of two sites: rebuild it.")
app.add_typer(site_app, name="site")


@site_app.command()
def rebuild(
    name: Annotated[str, typer.Argument(metavar="home|away", help="The site to empty and copy again.")],
    confirmed: Confirmed = "",
    force: Annotated[bool, typer.Option("--force", help="Rebuild it even if it is a healthy copy.")] = False,
    as_json: AsJson = False,
    why: Why = "",
) -> None:
    """Empty a site that is not active, and copy the active one into it while writes go on.

    It works with the old disk, which is archived, and without. If it is interrupted, run it again.
    """
    settings = client_settings()
    with only_command(settings, f"site rebuild {name}"), failover.failing(settings):
        incident = situation(settings).history.incident
        if incident is not None and incident.switch.source == name:
            report_first(settings, incident)
        rebuilding = rebuildable(settings, name, force)
        if confirm_site(name, rebuilding.consequences, confirmed):
            rebuilding = rebuildable(settings, name, force)  # it may be the only running copy by now
        act = recorded("site rebuild", name, why)
        with act, notes.status("Checking both sites") as status:
            done = rebuild_site(rebuilding, status.update)
    if as_json:
        print_json(done)
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


@app.command()
def failback(
    confirmed: Confirmed = "", timeout: failover.Timeout = 60.0, as_json: AsJson = False, why: Why = ""
) -> None:
    """After the loss of a site: rebuild it from the active one, and make it the active one again."""
    settings = client_settings()
    with only_command(settings, "failback"), failover.failing(settings):
        incident, rebuilding = open_incident(settings), None
        lost = incident.switch.source
        if not incident.rebuilt:
            report_first(settings, incident)
            rebuilding = rebuildable(settings, lost)
            consequences = f"{rebuilding.consequences} Then {lost} becomes the active site."
            if confirm_site(lost, consequences, confirmed):
                rebuilding = rebuildable(settings, lost)
        act = recorded("failback", lost, why)
        with act, notes.status("Checking both sites") as status:
            done = fail_back(settings, lost, rebuilding, timeout, status.update)
    if as_json:
        print_json(done)
    else:
        if done.rebuilt is not None:
            show_rebuilt(done.rebuilt)
        failover.show(done.switchover)
        comparison = done.comparison
        results.print(
            f"Both logs: {comparison.records} records equal, {len(comparison.different)} partitions differ, "
            f"{comparison.missing} records not mirrored yet."
        )
    for partition in done.comparison.different:
        notes.print(f"different: {partition}")
    if done.comparison.different:
        fail(
            f"the logs differ: do not trust the passive site; `./daybook site rebuild {done.switchover.source} --force`"
        )
