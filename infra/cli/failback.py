"""`daybook failback`: the way back to a site that was lost."""

import msgspec
import typer

from infra.base.settings import StackSettings
from infra.cli import failover, losses_shown
from infra.cli.output import fail, notes, results
from infra.dr.failback import fail_back

app = typer.Typer()


@app.command(rich_help_panel="Two sites")
def failback(timeout: failover.Timeout = 60.0, as_json: failover.AsJson = False) -> None:
    """Archive and rebuild the site that is not active, mirror everything back, and make it active again."""
    settings = StackSettings()
    try:
        losses_shown.keep_report(settings)
        with notes.status("Checking both sites") as status:
            done = fail_back(settings, timeout, status.update)
    except failover.FAILURES as reason:
        failover.stop(settings, reason)
    if as_json:
        results.print(msgspec.json.encode(done, enc_hook=str).decode())
    else:
        results.print(failover.table_of(done.steps))
        failover.show(done.switchover)
        found = done.comparison
        results.print(
            f"Both logs: {found.records} records equal, {len(found.different)} partitions differ, "
            f"{found.missing} records not mirrored yet."
        )
        results.print(f"The old log and database are in {done.archive}")
    for place in done.comparison.different:
        notes.print(f"different: {place}")
    if done.comparison.different:
        fail("the logs differ: do not trust the passive site; `./daybook failback` would rebuild the other")
