"""`daybook failback`: makes a lost site the active one again."""

import msgspec
import typer

from infra.base.settings import StackSettings
from infra.cli import failover
from infra.cli.acts import Why, recorded
from infra.cli.output import fail, notes, results
from infra.cli.precautions import Confirmed, confirm_site, only_command
from infra.cli.site import report_first, show_rebuilt
from infra.dr.failback import fail_back, open_incident
from infra.dr.rebuild import rebuildable

app = typer.Typer()


@app.command()
def failback(
    confirmed: Confirmed = "",
    timeout: failover.Timeout = 60.0,
    as_json: failover.AsJson = False,
    why: Why = "",
) -> None:
    """After the loss of a site: rebuild it from the active one, and make it the active one again."""
    settings = StackSettings()
    with only_command(settings, "failback"), failover.failing(settings):
        incident, rebuilding = open_incident(settings), None
        lost = incident.switch.source
        if not incident.rebuilt:
            report_first(settings, incident)
            rebuilding = rebuildable(settings, lost)
            confirm_site(lost, f"{rebuilding.consequences} Then {lost} becomes the active site.", confirmed)
        act = recorded("failback", lost, why)
        with act, notes.status("Checking both sites") as status:
            done = fail_back(settings, lost, rebuilding, timeout, status.update)
    if as_json:
        results.print(msgspec.json.encode(done, enc_hook=str).decode())
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
